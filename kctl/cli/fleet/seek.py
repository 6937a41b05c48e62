"""`kctl seek`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.scope import PartitionOption
from kctl.cli.fleet.submit import DeadlineOption, carry_out, fleet_of, submit
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.table import clean
from kctl.errors import OperationFailed, UsageError
from kctl.kafka.target import position

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("seek")(_seek)


def _seek(
    context: typer.Context,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Its topic.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, an offset, or a time such as 2026-11-21T10:00."),
    ],
    config: ConfigOption = None,
    partition: PartitionOption = None,
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
        plan = submit(fleet, "seek", {**params, "dry_run": True}, deadline)
        if plan["state"] != "done":
            raise OperationFailed(f"operation {plan['id']}, seek: {clean(plan['text'])}")
        sys.stderr.write(clean(plan["text"]).replace("; ", "\n") + "\n")
        if not sys.stdin.isatty():
            raise UsageError("stdin is not a terminal, so nothing can be confirmed: use --yes, or --dry-run")
        if not confirmed("Do it?"):
            raise UsageError("nothing was changed")
    carry_out(fleet, "seek", params, output, deadline=deadline)
