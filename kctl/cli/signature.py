"""Makes a command of a function: its parameters are the options, its docstring the help.

`Annotated[int, option("--limit", metavar="N", help="…")] = 50` is an option with a whole number; one that may be None
is optional.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from kctl.cli.command import Command, Option

_KINDS: dict[Any, str] = {bool: "flag", int: "int", float: "number", Path: "path"}


def command(
    name: str,
    function: Callable[..., int | None],
    more: Iterable[Option] = (),
    **made: Callable[[argparse.Namespace], object],
) -> Command:
    """The function returns the exit code. Each parameter in `made` gets a value that is made from the options in
    `more`."""
    hints = get_type_hints(function, include_extras=True)
    parameters = {key: each for key, each in inspect.signature(function).parameters.items() if key not in made}
    declared = tuple(_option(hints[key], parameter) for key, parameter in parameters.items())

    def run(parsed: argparse.Namespace, _env: Mapping[str, str]) -> int | None:
        given = {key: getattr(parsed, key) for key in parameters}
        return function(**given, **{key: make(parsed) for key, make in made.items()})

    summary, details, examples = help_parts(function)
    return Command(name, summary, (*declared, *more), examples, details, run=run)


def help_parts(documented: object) -> tuple[str, str, str]:
    """Examples are the last paragraph, if it begins with `kctl`."""
    summary, *details = (inspect.getdoc(documented) or "").split("\n\n")
    examples = details.pop() if details and details[-1].startswith("kctl ") else ""
    return summary.replace("\n", " "), "\n\n".join(details), examples


def _option(hint: Any, parameter: inspect.Parameter) -> Option:
    marker: Option = get_args(hint)[1]
    type_, default = _type(hint), parameter.default
    is_required = default is inspect.Parameter.empty
    several = "words" if marker.is_argument else "texts"
    kind = several if get_origin(type_) is list else _KINDS.get(type_, "text")
    return marker._replace(
        kind=kind if marker.kind == "text" else marker.kind,
        is_required=is_required,
        default=None if is_required else default,
        parameter=parameter.name,
    )


def _type(hint: Any) -> Any:
    """`Annotated[int | None, …]` -> `int`"""
    type_ = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next(each for each in get_args(type_) if each is not type(None)) if isinstance(type_, UnionType) else type_
