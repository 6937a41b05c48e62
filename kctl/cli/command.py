"""Declares commands as data, for help pages and completion, and parses command lines. Uses only the standard library,
so that `kctl rpc` and `kctl kafka lag` start fast."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kctl.cli.output import OUTPUTS
from kctl.cli.table import cell
from kctl.errors import UsageError

_FILLED = frozenset({"GROUP", "ID", "NAME", "TEXT", "TOPIC"})
"""Values that must not be empty: an empty text usually comes from an unset shell variable."""
_FORMATTER = partial(argparse.HelpFormatter, width=80)
"""Finding the terminal's width would import shutil with four codecs, 4 of 60 ms."""


class Option(NamedTuple):
    """An option, or an argument if its name has no dash. `kind` is `text`, `path`, `int`, `number`, `seconds`, `flag`,
    `texts` (a repeatable option) or `words` (several arguments)."""

    names: tuple[str, ...]
    help: str
    kind: str = "text"
    metavar: str | None = None
    default: object = None
    choices: tuple[str, ...] = ()
    is_required: bool = False
    bare: object = None  # the value of an option that is given without a value
    completed: tuple[tuple[str, str], ...] = ()
    least: float | None = None  # by default 0 for an `int`, above 0 for others
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
    """A command and its help. Each line of `examples` is a command line, optionally with a remark after four blanks."""

    name: str
    summary: str
    options: tuple[Option, ...]
    examples: str = ""
    details: str = ""
    epilog: str = ""
    run: Callable[[argparse.Namespace, Mapping[str, str]], int | None] | None = None
    """(parsed options, environment) -> exit code or None (0)."""


class CommandGroup(NamedTuple):
    name: str
    summary: str
    commands: tuple[Command | CommandGroup, ...]
    epilog: str = ""
    options: tuple[Option, ...] = ()
    details: str = ""
    examples: str = ""


CONFIG = Option(
    ("-c", "--config"),
    "the fleet's kctl.toml. Default: KCTL_CONFIG, ./kctl.toml, or your only running fleet",
    "path",
    "FILE",
)
FILE = CONFIG._replace(help="the fleet's kctl.toml. Default: KCTL_CONFIG, else ./kctl.toml")
SET = Option(("--set",), "override a setting; may be repeated", "texts", "SECTION.KEY=VALUE")
OUTPUT = Option(("-o", "--output"), "how the result is printed", choices=OUTPUTS, default="table")
WIDE_OUTPUT = OUTPUT._replace(choices=("table", "wide", "json", "yaml"))
YES = Option(("-y", "--yes"), "do not ask", "flag")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parsed(command: Command, words: Sequence[str], path: str = "kctl") -> argparse.Namespace:
    """Parses the `words` after a command. `path` is the command's full name, such as `kctl rpc`. Raises UsageError."""
    parser = _Parser(prog=path, allow_abbrev=False, add_help=False, formatter_class=_FORMATTER)
    for option in command.options:
        names = [option.key] if option.is_argument else list(option.names)
        parser.add_argument(*names, **_arguments(option))
    takes_several = any(option.kind == "words" for option in command.options)
    parse = parser.parse_known_intermixed_args if takes_several else parser.parse_known_args
    options, rest = parse(words)
    if rest:
        raise UsageError(f"{path} does not accept {cell(rest[0])}; see `{path} --help`")
    for option in command.options:
        given = getattr(options, option.key)
        if {option.metavar, option.names[0]} & _FILLED and "" in (given if isinstance(given, list) else [given]):
            raise UsageError(f"{max(option.names, key=len)} must not be empty; see `{path} --help`")
    return options


def nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    import difflib  # 5 ms

    *more, last = [f"`{each}`" for each in difflib.get_close_matches(name, known, n=3)] or [""]
    near = f"{', '.join(more)} or {last}" if more else last
    return f"the nearest is {near}" if near else f"there are {', '.join(known)}"


def _arguments(option: Option) -> dict[str, Any]:
    if option.kind == "flag":
        return {"action": "store_true", "dest": option.key}
    arguments: dict[str, Any] = {"default": option.default}
    if option.is_argument:
        arguments["metavar"] = option.names[0]
        if not option.is_required:
            arguments["nargs"] = "*" if option.kind == "words" else "?"
    else:
        arguments |= {"dest": option.key, "required": option.is_required}
    if option.choices:
        arguments["choices"] = option.choices
    if option.bare is not None:
        arguments |= {"nargs": "?", "const": option.bare}
    kinds: dict[str, dict[str, Any]] = {
        "path": {"type": Path},
        "int": {"type": partial(_whole, int(option.least or 0))},
        "number": {"type": partial(_number, "number", option.least)},
        "seconds": {"type": partial(_number, "number of seconds", option.least)},
        "texts": {"action": "append"},
        "words": {"nargs": "+"} if option.is_required else {},
    }
    return arguments | kinds.get(option.kind, {})


def _whole(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number < 2**63:
        bound = f"{least} or more" if number < least else "of 64 bits"
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number, {bound}")
    return number


def _number(what: str, least: float | None, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 if least is None else least <= number) or number == math.inf:
        bound = "above 0" if least is None else f"of {least:g} or more"
        raise argparse.ArgumentTypeError(f"`{text}` is not a {what} {bound}")
    return number
