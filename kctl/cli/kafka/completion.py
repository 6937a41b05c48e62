"""Typer's view of `kctl kafka`: its help pages and its shell completion, made from the same table.

`entry` passes every other `kctl kafka …` to `kafka`, which parses with argparse, before Typer is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from kctl.cli.kafka.options import COMMANDS, Command, Option

__all__ = ["register"]

_CLUSTER = """\
Which cluster: -b HOST:PORT (plain), else --context NAME or KCTL_CONTEXT ([contexts.NAME] of kctl.toml: TLS, SASL),
else the [kafka] of the fleet's kctl.toml (-c, KCTL_CONFIG, ./kctl.toml, or the one fleet of yours that is running);
-b beside a context asks other servers with the TLS and SASL of the context.
"""
_EXIT_CODES = """\
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 incomplete: a row or a broker is missing and named, 10 no broker answers,
11 no such topic, 17 authentication failed, 18 not authorised, 19 no such group, 20 no such partition, 21 message too
large, 22 not enough replicas, 23 wrong protocol (TLS, SASL or no Kafka), 24 the group has live members.
"""
_EPILOG = f"{_CLUSTER}\n{_EXIT_CODES}"
_TYPES: dict[str, Any] = {"int": int, "number": float, "flag": bool, "texts": list[str], "words": list[str]}


def register(app: typer.Typer) -> None:
    kafka = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Ask and change a Kafka cluster.",
        epilog=_EPILOG,
    )
    for command in COMMANDS.values():
        kafka.command(command.name, help=_help(command), epilog=_EPILOG)(_shadow(command))
    app.add_typer(kafka, name="kafka")


def _help(command: Command) -> str:
    examples = "\n".join(f"{words}{f'    {remark}' if remark else ''}" for words, remark in command.examples)
    return "\n\n".join(filter(None, (command.summary, command.details, f"\b\n{examples}")))


def _shadow(command: Command) -> Callable[..., None]:
    def never(**_options: object) -> NoReturn:
        raise NotImplementedError("kctl kafka is run by kctl.cli.kafka.parser")

    annotations = {option.key: _annotation(option) for option in command.options}
    parameters = [
        inspect.Parameter(
            option.key,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if option.is_required else option.default,
            annotation=annotations[option.key],
        )
        for option in command.options
    ]
    never.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    never.__annotations__ = annotations
    return never


def _annotation(option: Option) -> Any:
    kind = _TYPES.get(option.kind, str)
    text = f"{option.help[0].upper()}{option.help[1:]}."
    if option.is_argument:
        return Annotated[kind | None, typer.Argument(metavar=option.names[0], help=text)]
    metavar = "|".join(option.choices) or option.metavar
    return Annotated[kind | None, typer.Option(*option.names, help=text, metavar=metavar)]
