"""`kctl kafka <command>`: parsed by argparse from the table in `options`, because it must be fast.

Which cluster: `-b`, else `--context` or KCTL_CONTEXT, else the `[kafka]` of kctl.toml.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from kctl.cli.kafka.options import COMMANDS, Command, Option
from kctl.cli.parsing import Parser, positive
from kctl.errors import UsageError

__all__ = ["parser", "run"]

_SUMMARY = "Ask and change a Kafka cluster: groups, topics, offsets, messages, the protocol itself."
_CLUSTER = """\
which cluster: -b HOST:PORT (plain), else --context NAME or KCTL_CONTEXT ([contexts.NAME] of kctl.toml: TLS, SASL),
else the [kafka] of the fleet's kctl.toml (-c, KCTL_CONFIG, or the one fleet of yours that is running); -b beside a
context asks other servers with the TLS and SASL of the context
"""
_EXIT_CODES = """\
exit codes: 0 ok, 1 failed, 2 wrong usage, 3 incomplete: a row or a broker is missing and named, 10 no broker answers,
11 no such topic, 17 authentication failed, 18 not authorised, 19 no such group, 20 no such partition, 21 message too
large, 22 not enough replicas, 23 wrong protocol (TLS, SASL or no Kafka), 24 the group has live members
"""


def parser(command: Command) -> argparse.ArgumentParser:
    """The options of one command."""
    examples = "\n".join(f"  {words}{f'    {remark}' if remark else ''}" for words, remark in command.examples)
    made = Parser(
        prog=f"kctl kafka {command.name}",
        description="\n\n".join(filter(None, (command.summary, command.details))),
        epilog=f"examples:\n{examples}\n\n{_CLUSTER}\n{_EXIT_CODES}",
        # A width, because argparse would import shutil to ask the terminal, in every run and not only for --help.
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=110),
        allow_abbrev=False,
        add_help=False,
    )
    for option in command.options:
        made.add_argument(*_names(option), **_arguments(option))
    made.add_argument("-h", "--help", action="help", help="show this")
    return made


def run(words: Sequence[str], config: Path | None, env: Mapping[str, str]) -> int:
    """Run `kctl kafka` with the words after it; `config` is a `-c` that stood before it.

    Raises:
        KctlError: with the exit code of each.
    """
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        sys.stdout.write(_overview())
        return 0
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"the nearest is `{near[0]}`" if near else f"there are {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command `kctl kafka {name}`; {hint}")
    command = COMMANDS[name]
    try:
        options = parser(command).parse_args(words[1:])
    except SystemExit:  # --help has been printed
        return 0
    if options.config is None and config is not None:
        options.config = str(config)
    code: int = import_module(f"kctl.cli.kafka.{name.replace('-', '_')}").run(options, env)
    return code


def _overview() -> str:
    widest = max(map(len, COMMANDS))
    listed = "\n".join(f"  {command.name:<{widest}}  {command.summary}" for command in COMMANDS.values())
    return (
        f"usage: kctl kafka COMMAND [options]\n\n{_SUMMARY}\n\ncommands:\n{listed}\n\n{_CLUSTER}\n{_EXIT_CODES}\n"
        "`kctl kafka COMMAND --help` shows its options and examples; docs/kafka-commands.md their output.\n"
    )


def _names(option: Option) -> list[str]:
    return [option.key] if option.is_argument else list(option.names)


def _arguments(option: Option) -> dict[str, Any]:
    arguments: dict[str, Any] = {"help": option.help}
    if option.kind == "flag":
        return arguments | {"action": "store_true"}
    if option.is_argument:
        arguments |= {"metavar": option.names[0]} | ({} if option.is_required else {"nargs": "?"})
    else:
        arguments |= {"dest": option.key, "default": option.default, "required": option.is_required}
        if option.metavar:
            arguments["metavar"] = option.metavar
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
