"""`kctl pause` and `kctl resume`: the operations on a worker, a topic, a partition or everything."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kctl.cli.fleet.submit import DeadlineOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.errors import UsageError

__all__ = ["PartitionOption", "register_scoped"]

_WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", metavar="NAME", show_default=False, help="This worker or sinker; not the engine."),
]
_TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", show_default=False, help="This topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", show_default=False, help="This partition of the topic.")
]
_AllOption = Annotated[bool, typer.Option("--all", help="Everything, sinkers too.")]


def register_scoped(app: typer.Typer, name: str, summary: str) -> None:
    """The command of the operation `name`; `summary` is its help."""

    def command(
        context: typer.Context,
        config: ConfigOption = None,
        worker: _WorkerOption = None,
        topic: _TopicOption = None,
        partition: PartitionOption = None,
        everything: _AllOption = False,
        deadline: DeadlineOption = None,
        output: OutputOption = Output.TABLE,
    ) -> None:
        params = _scope(worker, topic, partition, everything)
        carry_out(fleet_of(context, config), name, params, output, deadline=deadline)

    app.command(name, help=summary)(command)


def _scope(worker: str | None, topic: str | None, partition: int | None, everything: bool) -> dict[str, Any]:
    if everything and (worker is not None or topic is not None):
        raise UsageError(f"only one of --all and {'--topic' if worker is None else '--worker'}")
    if worker is not None and topic is not None:
        raise UsageError("only one of --worker and --topic")
    if worker is None and topic is None and not everything:
        raise UsageError("give --worker NAME, --topic NAME (with --partition N), or --all")
    return {"worker": worker, "topic": topic, "partition": partition, "all": everything or None}
