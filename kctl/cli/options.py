"""Options that several of Typer's commands share, and what follows from them."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.fleets import named

__all__ = [
    "ConfigOption",
    "FileOption",
    "Output",
    "OutputOption",
    "SetOption",
    "WideOutput",
    "YesOption",
    "config_file",
    "config_option",
    "overrides",
]


class Output(StrEnum):
    """Formats of a printed result; the same as `kctl.cli.output.OUTPUTS`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class WideOutput(StrEnum):
    """Formats as `Output`, and a table with every column and nothing cut."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        show_default=False,
        help="The fleet's kctl.toml. Default: KCTL_CONFIG, ./kctl.toml, or the one fleet of yours that is running.",
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        show_default=False,
        help="The fleet's kctl.toml. Default: KCTL_CONFIG, else ./kctl.toml.",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How the result is printed.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", show_default=False, help="Override a setting; may be repeated."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def config_option(context: typer.Context, config: Path | None) -> Path | None:
    """Returns the configuration of `-c`, which may stand before the command or after it; the one after it wins."""
    before: Path | None = context.find_root().obj
    return config or before


def config_file(context: typer.Context, config: Path | None) -> Path:
    """Returns the configuration that was named, for commands that do not need a running fleet.

    Raises:
        UsageError: none was named.
    """
    path = named(config_option(context, config), os.environ)
    if path is None:
        raise UsageError("name a configuration: -c kctl.toml, or KCTL_CONFIG; there is no kctl.toml in this folder")
    return path


def overrides(assignments: list[str] | None) -> dict[str, str]:
    """Returns `--set` as setting name -> text.

    Raises:
        UsageError: not `section.key=value`.
    """
    pairs = [assignment.partition("=") for assignment in assignments or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set takes SECTION.KEY=VALUE, not `{name}`")
    return {name.strip(): value for name, _, value in pairs}
