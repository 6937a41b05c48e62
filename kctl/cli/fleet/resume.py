"""`kctl resume`"""

from __future__ import annotations

import typer

from kctl.cli.fleet.scope import AllOption, PartitionOption, TopicOption, WorkerOption, scope
from kctl.cli.fleet.submit import DeadlineOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("resume")(_resume)


def _resume(
    context: typer.Context,
    config: ConfigOption = None,
    worker: WorkerOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    everything: AllOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read again what was paused.

    `--all` ends every pause.
    """
    params = scope(worker, topic, partition, everything)
    carry_out(fleet_of(context, config), "resume", params, output, deadline=deadline)
