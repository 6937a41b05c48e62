"""`kctl reload`"""

from __future__ import annotations

import typer

from kctl.cli.fleet.submit import carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("reload")(_reload)


def _reload(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Read the configuration again.

    Applies what can be applied, and names what needs a restart of the processes or of the fleet. A file that cannot be
    used changes nothing. SIGHUP to the master is the same operation.
    """
    carry_out(fleet_of(context, config), "reload", {}, output, deadline=None)
