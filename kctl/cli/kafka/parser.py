"""The parser of `kctl kafka <command>`: argparse with the table in `options`, because it must be fast.

Which cluster: `-b`, else `--context` or KCTL_CONTEXT, else the `[kafka]` of kctl.toml.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from kctl.cli.kafka.options import COMMANDS, Command, Option
from kctl.cli.parsing import Parser, positive
from kctl.errors import UsageError

__all__ = ["parser", "run"]


def parser(command: Command) -> argparse.ArgumentParser:
    """Returns the parser of one command's options."""
    made = Parser(prog=f"kctl kafka {command.name}", allow_abbrev=False, add_help=False)
    for option in command.options:
        made.add_argument(*_names(option), **_arguments(option))
    return made


def run(words: Sequence[str], config: Path | None, env: Mapping[str, str]) -> int:
    """Runs `kctl kafka` with the words after it; `config` is a `-c` that stood before it.

    Raises:
        KctlError: with the exit code of each.
    """
    if not words:
        raise UsageError(f"give a command: {', '.join(COMMANDS)}")
    name = words[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"the nearest is `{near[0]}`" if near else f"there are {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command `kctl kafka {name}`; {hint}")
    command = COMMANDS[name]
    options = parser(command).parse_args(words[1:])
    if options.config is None and config is not None:
        options.config = str(config)
    code: int = import_module(f"kctl.cli.kafka.{name.replace('-', '_')}").run(options, env)
    return code


def _names(option: Option) -> list[str]:
    return [option.key] if option.is_argument else list(option.names)


def _arguments(option: Option) -> dict[str, Any]:
    if option.kind == "flag":
        return {"action": "store_true"}
    arguments: dict[str, Any]
    if option.is_argument:
        arguments = {"metavar": option.names[0]}
        if not option.is_required:
            arguments["nargs"] = "*" if option.kind == "words" else "?"
            return arguments
    else:
        arguments = {"dest": option.key, "default": option.default, "required": option.is_required}
    if option.choices:
        arguments["choices"] = option.choices
    kinds: dict[str, dict[str, Any]] = {
        "int": {"type": _whole},
        "number": {"type": positive},
        "texts": {"action": "append"},
        "words": {"nargs": "+"},
    }
    return arguments | kinds.get(option.kind, {})


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number, 0 or more")
    return number
