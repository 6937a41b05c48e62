"""`kctl seek`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.scope import PartitionOption
from kctl.cli.fleet.submit import DeadlineOption, fleet_of, follow, show, submit
from kctl.cli.options import ConfigOption, Output, OutputOption, YesOption
from kctl.cli.table import Column, clean, render
from kctl.errors import OperationFailed, UsageError
from kctl.kafka.target import position

__all__ = ["register"]

_KEYS = ("topic", "partition", "from", "to", "skipped", "again")
_COLUMNS = tuple(Column(key, is_number=key != "topic") for key in _KEYS)
"""`again`: how many offsets are handled a second time."""


def register(app: typer.Typer) -> None:
    app.command("seek")(_seek)


def _seek(
    context: typer.Context,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Its topic.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, an offset, a time, or 0=1200,3=55."),
    ],
    config: ConfigOption = None,
    partition: PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
    yes: YesOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Continue reading a topic from another position.

    The committed offset of the group and the stored offset move together, in every worker that has a partition of
    it. Shows first what will be skipped or handled again, and asks. Messages that are in the storage already are
    handled. `latest` and times are what they are when it is shown; with `--yes`, when it begins. A time without a zone
    is in the zone of the master's host. It gives up after 120 s, or `--deadline`; then nothing is moved later.

    \b
    kctl seek --topic orders --to earliest --dry-run
    kctl seek --topic orders --partition 3 --to 1200
    kctl seek --topic orders --to 0=1200,3=55
    kctl seek --topic orders --to 2026-11-21T06:00:00Z
    """
    if "=" not in to:
        position(to)
    fleet = fleet_of(context, config)
    params: dict[str, Any] = {"topic": topic, "partition": partition, "to": to}
    if dry_run:
        _show(follow(fleet, submit(fleet, "seek", {**params, "dry_run": True}, deadline)), output)
        return
    if not yes:
        params = {"topic": topic, "to": _confirmed(submit(fleet, "seek", {**params, "dry_run": True}, deadline))}
    _show(follow(fleet, submit(fleet, "seek", params, deadline)), output)


def _confirmed(plan: dict[str, Any]) -> str:
    """The offsets that the operator agrees to. Raises UsageError without that; OperationFailed if there is no plan."""
    if plan["state"] != "done":
        raise OperationFailed(f"operation {plan['id']}, seek: {clean(plan['text'])}")
    sys.stderr.write("\n".join([*_table(plan), ""]))
    if not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal, so nothing can be confirmed: use --yes, or --dry-run")
    if not confirmed("Do it?"):
        raise UsageError("nothing was changed")
    return ",".join(f"{row['partition']}={row['to']}" for row in plan["result"]["rows"])


def _show(operation: dict[str, Any], output: Output) -> None:
    """Print what a seek did or would do. Raises OperationFailed."""
    if output is Output.TABLE and operation["state"] == "done":
        typer.echo("\n".join(_table(operation)))
    else:
        show(operation, output)


def _table(operation: dict[str, Any]) -> list[str]:
    return render(_COLUMNS, [[row[key] for key in _KEYS] for row in operation["result"]["rows"]])
