"""`kctl pause`"""

from __future__ import annotations

import typer

from kctl.cli.fleet.scope import AllOption, PartitionOption, TopicOption, WorkerOption, scope
from kctl.cli.fleet.submit import DeadlineOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("pause")(_pause)


def _pause(
    context: typer.Context,
    config: ConfigOption = None,
    worker: WorkerOption = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    everything: AllOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop reading a worker, a topic, a partition or everything.

    Until it is resumed. Workers stay in their group and keep their partitions; the pause outlives rebalances, restarts
    of workers and of the master. `kctl status` shows what is paused, by whom and since when.

    \b
    kctl pause --topic orders --partition 3
    kctl pause --worker sinker-0
    kctl pause --all
    """
    params = scope(worker, topic, partition, everything)
    carry_out(fleet_of(context, config), "pause", params, output, deadline=deadline)
