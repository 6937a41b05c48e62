"""`kctl restart` shows which processes it is about, and asks before the engine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.submit import carry_out, show, submit
from kctl.cli.table import clean
from kctl.errors import UsageError
from kctl.fleets import Fleet
from kctl_agent.paths import ENGINE_NAME

__all__ = ["run"]


def run(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    if options.dry_run or options.all or ENGINE_NAME in (options.name or ()):
        planned = {key: value for key, value in params.items() if key != "rolling"}
        plan = submit(fleet, "restart", {**planned, "dry_run": True})
        if options.dry_run or plan["state"] != "done":
            show(plan, options.output)
            return
        if plan["result"]["engine"]:
            _agree(clean(plan["text"]), is_asked=not options.yes and sys.stdin.isatty())
    carry_out(fleet, "restart", params, options.output, deadline=options.deadline, wait=options.wait)


def _agree(text: str, *, is_asked: bool) -> None:
    sys.stderr.write(f"{text}\n")
    if is_asked and not confirmed("Do it?"):
        raise UsageError("nothing was changed")
