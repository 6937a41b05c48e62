"""`kctl seek` shows what it would do, and asks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.submit import follow, show, submit
from kctl.cli.table import clean, columns, render
from kctl.errors import OperationFailed, UsageError
from kctl.fleets import Fleet
from kctl.kafka.target import position

__all__ = ["run"]

_KEYS = ("topic", "partition", "from", "to", "skipped", "again")
_COLUMNS = columns("topic >partition >from >to >skipped >again")
"""`again`: how many offsets are handled a second time."""


def run(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    if "=" not in options.to:
        position(options.to)
    fleet = find_fleet()
    if not options.dry_run and not options.yes:
        plan = submit(fleet, "seek", {**params, "dry_run": True}, options.deadline)
        params = {"topic": options.topic, "to": _confirmed(plan)}
    _show(follow(fleet, submit(fleet, "seek", params, options.deadline)), options.output)


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


def _show(operation: dict[str, Any], output: str) -> None:
    """Print what a seek did or would do. Raises OperationFailed."""
    if output == "table" and operation["state"] == "done":
        sys.stdout.write("\n".join([*_table(operation), ""]))
    else:
        show(operation, output)


def _table(operation: dict[str, Any]) -> list[str]:
    return render(_COLUMNS, [[row[key] for key in _KEYS] for row in operation["result"]["rows"]])
