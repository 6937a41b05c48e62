"""Options that several commands share, as annotations of parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kctl.cli.command import CONFIG, OUTPUT, YES, option
from kctl.errors import UsageError
from kctl.fleets import Fleet, find, named

if TYPE_CHECKING:
    from kctl.config.sections import Config

ConfigOption = Annotated[Path | None, CONFIG]
FileOption = Annotated[
    Path | None, CONFIG._replace(help="the fleet's kctl.toml. Default: KCTL_CONFIG, else ./kctl.toml")
]
OutputOption = Annotated[str, OUTPUT]
SetOption = Annotated[
    list[str] | None, option("--set", metavar="SECTION.KEY=VALUE", help="override a setting; may be repeated")
]
YesOption = Annotated[bool, YES]


def fleet_of(config: Path | None) -> Fleet:
    return find(config, os.environ)


def load_fleet(config: Path | None) -> Config:
    """The configuration of the chosen fleet, which need not run."""
    from kctl.config.load import load

    return load(fleet_of(config).config, os.environ)


def config_file(config: Path | None) -> Path:
    """For commands that need no running fleet. Raises UsageError."""
    path = named(config, os.environ)
    if path is None:
        raise UsageError("name a configuration: -c kctl.toml, or KCTL_CONFIG; there is no kctl.toml in this folder")
    return path


def overrides(assignments: list[str] | None) -> dict[str, str]:
    """Setting name -> text. Raises UsageError."""
    pairs = [assignment.partition("=") for assignment in assignments or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set takes SECTION.KEY=VALUE, not `{name}`")
    return {name.strip(): value for name, _, value in pairs}
