"""`kctl kafka` as Typer knows it: its commands on the help page and in shell completion, made from the same table.

`entry` passes `kctl kafka …` to `kafka`, which parses with argparse, before Typer is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from kctl.cli.kafka.options import COMMANDS, Command, Option

__all__ = ["register"]

_TYPES: dict[str, Any] = {"int": int, "number": float, "flag": bool, "texts": list[str], "words": list[str]}


def register(app: typer.Typer) -> None:
    kafka = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Ask and change a Kafka cluster.",
    )
    for command in COMMANDS.values():
        kafka.command(command.name, help=command.summary)(_shadow(command))
    app.add_typer(kafka, name="kafka")


def _shadow(command: Command) -> Callable[..., None]:
    def never(**_options: object) -> NoReturn:
        raise NotImplementedError("kctl kafka is run by kctl.cli.kafka.parser")

    annotations = {option.key: _annotation(option) for option in command.options}
    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for key, annotation in annotations.items()
    ]
    never.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    never.__annotations__ = annotations
    return never


def _annotation(option: Option) -> Any:
    kind = _TYPES.get(option.kind, str)
    if option.is_argument:
        return Annotated[kind | None, typer.Argument(metavar=option.names[0])]
    return Annotated[
        kind | None, typer.Option(*option.names, help=option.help.replace("%%", "%"), metavar=option.metavar)
    ]
