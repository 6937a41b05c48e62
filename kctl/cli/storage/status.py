"""`kctl storage status`"""

from __future__ import annotations

import typer

from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.output import as_text
from kctl.cli.storage.opened import load_fleet, opened
from kctl.cli.storage.tables import status_document, status_lines

__all__ = ["status"]


def status(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Count waiting, leased, delayed and dead messages."""
    with opened(load_fleet(context, config)) as storage:
        stats = storage.stats()
        identity = storage.identity
    if output is Output.TABLE:
        typer.echo("\n".join(status_lines(identity, stats)))
    else:
        document = status_document(identity, stats)
        typer.echo(as_text(document, output))
