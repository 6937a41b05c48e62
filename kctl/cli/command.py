"""Declares commands: their options and help as data for parsing, help pages and completion. Standard library only, so
that `kctl rpc` and `kctl kafka lag` start fast."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import NamedTuple

from kctl.cli.output import OUTPUTS


class Option(NamedTuple):
    """An option, or an argument if its only name has no dash. `kind`: `text`, `path`, `int`, `number`, `seconds`,
    `flag`, `texts` (may be repeated) or `words` (several)."""

    names: tuple[str, ...]
    help: str
    kind: str = "text"
    metavar: str | None = None
    default: object = None
    choices: tuple[str, ...] = ()
    is_required: bool = False
    bare: object = None
    """Its value if given without one."""
    completed: tuple[tuple[str, str], ...] = ()
    least: float | None = None
    """By default 0 for an `int`, above 0 for others."""
    parameter: str = ""

    @property
    def is_argument(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def key(self) -> str:
        if self.parameter:
            return self.parameter
        name = max(self.names, key=len).lstrip("-").lower()
        key = "".join(letter if letter.isalnum() else "_" for letter in name)
        return f"{key}_" if iskeyword(key) else key


class Command(NamedTuple):
    """A command and its help. `examples` are command lines, each with a remark or an empty text."""

    name: str
    summary: str
    options: tuple[Option, ...]
    examples: tuple[tuple[str, str], ...] = ()
    details: str = ""
    epilog: str = ""
    run: Callable[[argparse.Namespace, Mapping[str, str]], int | None] | None = None
    """(parsed options, environment) -> exit code or None (0). A table sets it where it is used."""


class CommandGroup(NamedTuple):
    name: str
    summary: str
    commands: tuple[Command | CommandGroup, ...]
    epilog: str = ""
    options: tuple[Option, ...] = ()
    details: str = ""
    examples: tuple[tuple[str, str], ...] = ()


def option(
    *names: str,
    help: str,  # noqa: A002 - as argparse calls it
    metavar: str | None = None,
    least: float | None = None,
    choices: tuple[str, ...] = (),
) -> Option:
    """Annotates a parameter, which has the type and the default."""
    return Option(names, help, metavar=metavar, least=least, choices=choices)


def argument(name: str, help: str) -> Option:  # noqa: A002 - as above
    return Option((name,), help)


CONFIG = Option(
    ("-c", "--config"),
    "the fleet's kctl.toml. Default: KCTL_CONFIG, ./kctl.toml, or your only running fleet",
    "path",
    "FILE",
)
OUTPUT = Option(("-o", "--output"), "how the result is printed", choices=OUTPUTS, default="table")
WIDE_OUTPUT = OUTPUT._replace(choices=("table", "wide", "json", "yaml"))
YES = Option(("-y", "--yes"), "do not ask", "flag")
