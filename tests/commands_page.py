"""docs/command-line.md from the help pages: `python -m tests.commands_page > docs/command-line.md`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from unittest.mock import patch

from kctl.cli.command import Command, CommandGroup
from kctl.cli.entry import tree
from kctl.cli.help import page
from kctl.operations import COMMANDS as OPERATIONS

_HEAD = """\
# The command line

<!-- Written by `python -m tests.commands_page > docs/command-line.md` from kctl/cli. Change it there. -->

This page has what `kctl COMMAND --help` prints. [commands.md](commands.md) explains how kctl chooses the fleet, and
what lag is; [rpc.md](rpc.md) has the questions of `kctl rpc` and the operations (`kctl pause`, `kctl restart`, …).
"""


def reference() -> str:
    with patch.dict(os.environ, COLUMNS="100"):
        return "".join([_HEAD, *_sections(tree(), "kctl")])


def _sections(node: Command | CommandGroup, path: str) -> Iterator[str]:
    """A command without the epilog, which is that of its group."""
    shown = node if isinstance(node, CommandGroup) else node._replace(epilog="")
    yield f"\n## `{path}`\n\n```\n{page(shown, path)}\n```\n"
    if isinstance(node, CommandGroup):
        for each in node.commands:
            if each.name not in OPERATIONS:
                yield from _sections(each, f"{path} {each.name}")


if __name__ == "__main__":
    sys.stdout.write(reference())
