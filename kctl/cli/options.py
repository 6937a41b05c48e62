"""Reads the options that several commands share: `-c` and `--set`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.errors import UsageError
from kctl.fleets import find, named

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from kctl.config.sections import Config


def load_fleet(options: argparse.Namespace, env: Mapping[str, str]) -> Config:
    """Loads the configuration of the chosen fleet, which need not run."""
    from kctl.config.load import load

    return load(find(options.config, env).config, env)


def config_file(options: argparse.Namespace, env: Mapping[str, str]) -> Path:
    """Returns the chosen configuration file, for commands that need no running fleet. Raises UsageError."""
    path = named(options.config, env)
    if path is None:
        raise UsageError("name a configuration: -c kctl.toml, or KCTL_CONFIG; there is no kctl.toml in this folder")
    return path


def overrides(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings that `--set` gives, as name -> text. Raises UsageError."""
    pairs = [assignment.partition("=") for assignment in options.set or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set takes SECTION.KEY=VALUE, not `{name}`")
    return {name.strip(): value for name, _, value in pairs}
