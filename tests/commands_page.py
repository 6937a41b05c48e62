"""The commands of docs/command-line.md, from their help pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

from kctl.cli.command import Command, CommandGroup
from kctl.cli.entry import tree
from kctl.cli.help import page
from kctl.operations import COMMANDS as OPERATIONS


def reference() -> str:
    with patch.dict(os.environ, COLUMNS="100"):
        return "".join(_sections(tree(), "kctl"))


def _sections(node: Command | CommandGroup, path: str) -> Iterator[str]:
    """A command without the epilog, which is that of its group."""
    shown = node if isinstance(node, CommandGroup) else node._replace(epilog="")
    yield f"\n## `{path}`\n\n```\n{page(shown, path)}\n```\n"
    if isinstance(node, CommandGroup):
        for each in node.commands:
            if each.name not in OPERATIONS:
                yield from _sections(each, f"{path} {each.name}")
