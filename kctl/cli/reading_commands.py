"""`kctl pause`, `kctl resume`, `kctl seek`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kctl.cli.confirm import confirmed
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.order import DeadlineOption, carry_out, fleet_of, give
from kctl.cli.table import clean
from kctl.errors import OrderFailed, UsageError
from kctl.kafka.target import position

__all__ = ["register_pause", "register_resume", "register_seek"]

_WorkerOption = Annotated[
    str | None, typer.Option("--worker", metavar="NAME", show_default=False, help="This worker or sinker.")
]
_TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", show_default=False, help="This topic.")]
_PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", show_default=False, help="This partition of the topic.")
]
_AllOption = Annotated[bool, typer.Option("--all", help="Everything, sinkers too.")]


def register_pause(app: typer.Typer) -> None:
    app.command("pause")(_pause)


def register_resume(app: typer.Typer) -> None:
    app.command("resume")(_resume)


def register_seek(app: typer.Typer) -> None:
    app.command("seek")(_seek)


def _pause(
    context: typer.Context,
    config: ConfigOption = None,
    worker: _WorkerOption = None,
    topic: _TopicOption = None,
    partition: _PartitionOption = None,
    everything: _AllOption = False,
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
    scope = _scope(worker, topic, partition, everything)
    carry_out(fleet_of(context, config), "pause", scope, output, deadline=deadline)


def _resume(
    context: typer.Context,
    config: ConfigOption = None,
    worker: _WorkerOption = None,
    topic: _TopicOption = None,
    partition: _PartitionOption = None,
    everything: _AllOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read again what was paused.

    `--all` ends every pause.
    """
    scope = _scope(worker, topic, partition, everything)
    carry_out(fleet_of(context, config), "resume", scope, output, deadline=deadline)


def _seek(
    context: typer.Context,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Its topic.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, an offset, or a time such as 2026-11-21T10:00."),
    ],
    config: ConfigOption = None,
    partition: _PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Continue reading a topic from another position.

    The offset of the group and the mark of the storage move together, in every worker that has a partition of it. Says
    first what will be skipped or handled again, and asks. Messages that are in the storage already are handled.

    \b
    kctl seek --topic orders --to earliest --dry-run
    kctl seek --topic orders --partition 3 --to 1200
    kctl seek --topic orders --to 2026-11-21T06:00
    """
    position(to)
    fleet = fleet_of(context, config)
    params: dict[str, Any] = {"topic": topic, "partition": partition, "to": to}
    if dry_run:
        carry_out(fleet, "seek", {**params, "dry_run": True}, output, deadline=deadline)
        return
    if not yes:
        plan = give(fleet, "seek", {**params, "dry_run": True}, deadline)
        if plan["state"] != "done":
            raise OrderFailed(f"order {plan['id']}, seek: {clean(plan['text'])}")
        sys.stderr.write(clean(plan["text"]).replace("; ", "\n") + "\n")
        if not sys.stdin.isatty():
            raise UsageError("stdin is not a terminal, so nothing can be confirmed: use --yes, or --dry-run")
        if not confirmed("Do it?"):
            raise UsageError("nothing was changed")
    carry_out(fleet, "seek", params, output, deadline=deadline)


def _scope(worker: str | None, topic: str | None, partition: int | None, everything: bool) -> dict[str, Any]:
    if everything and (worker is not None or topic is not None):
        raise UsageError(f"only one of --all and {'--topic' if worker is None else '--worker'}")
    if worker is not None and topic is not None:
        raise UsageError("only one of --worker and --topic")
    if worker is None and topic is None and not everything:
        raise UsageError("say which: --worker NAME, --topic NAME (with --partition N), or --all")
    return {"worker": worker, "topic": topic, "partition": partition, "all": everything or None}
