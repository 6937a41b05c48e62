"""`kctl seek`, `restart` and `stack`, which also print a plan to confirm, or stacks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.submit import carry_out, follow, show, submit
from kctl.cli.table import clean, columns, render
from kctl.errors import OperationFailed, UsageError
from kctl.fleets import Fleet
from kctl.kafka.target import position
from kctl_agent.paths import ENGINE_NAME

_KEYS = ("topic", "partition", "from", "to", "skipped", "again")
_COLUMNS = columns("topic >partition >from >to >skipped >again")
"""`again`: how many offsets will be handled a second time."""


def restart(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    if options.dry_run or options.all or ENGINE_NAME in (options.name or ()):
        planned = {key: value for key, value in params.items() if key != "rolling"}
        plan = follow(fleet, submit(fleet, "restart", {**planned, "dry_run": True}))
        if options.dry_run or plan["state"] != "done":
            show(plan, options.output)
            return
        if any(each["engine"] for each in plan["result"].get("hosts", {"": plan["result"]}).values()):
            _agree(clean(plan["text"]), is_asked=not options.yes and sys.stdin.isatty())
    carry_out(fleet, "restart", params, options.output, deadline=options.deadline, wait=options.wait)


def _agree(text: str, *, is_asked: bool) -> None:
    sys.stderr.write(f"{text}\n")
    if is_asked and not confirmed("Do it?"):
        raise UsageError("nothing was changed")


def seek(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    if "=" not in options.to:
        position(options.to)
    fleet = find_fleet()
    if not options.dry_run and not options.yes:
        plan = submit(fleet, "seek", {**params, "dry_run": True}, options.deadline)
        params = {name: value for name, value in params.items() if name != "partition"} | {"to": _confirmed(plan)}
    _show_seek(follow(fleet, submit(fleet, "seek", params, options.deadline)), options.output)


def _confirmed(plan: dict[str, Any]) -> str:
    """The offsets that the operator confirmed. Raises UsageError, OperationFailed."""
    if plan["state"] != "done":
        raise OperationFailed(f"operation {plan['id']}, seek: {clean(plan['text'])}")
    sys.stderr.write("\n".join([*_table(plan), ""]))
    if not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal, so you cannot confirm it: use --yes, or --dry-run")
    if not confirmed("Do it?"):
        raise UsageError("nothing was changed")
    return ",".join(f"{row['partition']}={row['to']}" for row in plan["result"]["rows"])


def _show_seek(operation: dict[str, Any], output: str) -> None:
    """Prints what a seek did or would do. Raises OperationFailed."""
    if output == "table" and operation["state"] == "done":
        sys.stdout.write("\n".join([*_table(operation), ""]))
    else:
        show(operation, output)


def _table(operation: dict[str, Any]) -> list[str]:
    return render(_COLUMNS, [[row[key] for key in _KEYS] for row in operation["result"]["rows"]])


def stack(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    operation = follow(fleet, submit(fleet, "stack", params, options.deadline))
    show(operation, options.output)
    if options.output == "table":
        for thread in operation["result"].get("threads", ()):
            sys.stdout.write(f"\n{thread['thread']}\n{thread['stack'].rstrip()}\n")
        for jvm in operation["result"].get("jvms", ()):
            sys.stdout.write(f"\nJVM, pid {jvm['pid']}\n{jvm.get('stack') or jvm.get('error')}\n")
