"""The summary of a demo: its counts, whether it passed, and how to print it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl.demo.audit import Audit
from kctl_agent.storage.kinds import KINDS


@dataclass(frozen=True)
class DemoOptions:
    """The options of `kctl demo`. `seconds` None: until Ctrl-C."""

    workers: int
    partitions: int
    rate: float
    seconds: float | None
    storage: str
    sinkers: int

    @property
    def is_handled(self) -> bool:
        return self.sinkers > 0 or KINDS[self.storage].is_handled_inside


@dataclass
class DemoProgress:
    started_at: float = field(default_factory=time.monotonic)
    largest_lag: int | None = None
    seconds_to_first_batch: float | None = None
    committed: int = 0
    sinkers: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """Each sinker's last report, by name and pid."""

    def take(self, offsets: list[dict[str, Any]], workers: list[dict[str, Any]]) -> None:
        known = [row["remaining_count"] for row in offsets if row["remaining_count"] is not None]
        if known:
            self.largest_lag = max(self.largest_lag or 0, sum(known))
        self.committed = sum(row["current_offset"] or 0 for row in offsets)
        if self.seconds_to_first_batch is None and any(
            row["batches_total"] for row in workers if row["kind"] == "worker"
        ):
            self.seconds_to_first_batch = time.monotonic() - self.started_at
        self.sinkers.update({(row["name"], row["pid"]): row["sinker"] for row in workers if row.get("sinker")})

    def settled(self, outcome: str) -> int:
        return sum(stats[outcome] for stats in self.sinkers.values())


def summary(
    found: Audit | None,
    progress: DemoProgress,
    produced: int,
    not_acknowledged: int,
    options: DemoOptions,
    ended: str | None = None,
) -> dict[str, Any]:
    """Printed by `-o json`; null is unknown, such as the outcome of messages without an audit. `ended` names the part
    that has ended by itself."""
    first = progress.seconds_to_first_batch
    is_retried_known = not KINDS[options.storage].is_handled_inside and (bool(progress.sinkers) or not options.sinkers)
    return {
        "produced": produced,
        "stored": found and found.stored,
        "lost": found and found.lost,
        "duplicated": found and found.duplicated,
        "not_stored": found and found.not_stored,
        "handled": found and found.handled,
        "handled_again": found and found.handled_again,
        "retried": progress.settled("retried") if is_retried_known else None,
        "dead": found and found.dead,
        "sinkers_restarted": max(len(progress.sinkers) - options.sinkers, 0),
        "largest_lag": progress.largest_lag,
        "seconds_to_first_batch": None if first is None else round(first, 2),
        "seconds": round(time.monotonic() - progress.started_at, 1),
        "workers": options.workers,
        "sinkers": options.sinkers,
        "partitions": options.partitions,
        "storage": options.storage,
        "not_acknowledged": not_acknowledged,
        "ended_by_itself": ended,
    }


def has_passed(summary: Mapping[str, Any], options: DemoOptions) -> bool:
    """All messages must be stored once, and handled if there is a handler, because the demo's handler rejects none;
    only the death of a sinker or a repeated batch excuses a second time."""
    if summary["ended_by_itself"] is not None:
        return False
    is_stored = summary["lost"] == summary["duplicated"] == 0 and summary["stored"] == summary["produced"]
    if not options.is_handled:
        return bool(is_stored)
    is_handled = summary["handled"] == summary["produced"] and summary["dead"] == 0
    is_excused = summary["sinkers_restarted"] > 0 or KINDS[options.storage].is_handled_inside
    return bool(is_stored and is_handled and (summary["handled_again"] == 0 or is_excused))


def show(summary: Mapping[str, Any], output: str, place: Path, *, is_handled: bool, passed: bool) -> None:
    if output == "json":
        print(json.dumps(summary), flush=True)  # noqa: T201
        if not passed:
            print(f"kctl: all of the demo is kept in {place}", file=sys.stderr)  # noqa: T201
        return
    names = ["produced", "stored", "lost", "duplicated"] + ["not_stored"] * (summary["not_stored"] != 0)
    if is_handled:
        names += ["handled", "handled_again", "retried", "dead"]
    for name in (*names, "largest_lag", "seconds_to_first_batch"):
        value = summary[name]
        print(f"{name.replace('_', '-'):<24}{'-' if value is None else f'{value:,}':>12}")  # noqa: T201
    if summary["ended_by_itself"] is not None:
        print(f"{summary['ended_by_itself']}; all of the demo is kept in {place}")  # noqa: T201
    elif not passed:
        what = "stored exactly once" + (" and handled" if is_handled else "")
        print(f"not everything that was produced is {what}; all of the demo is kept in {place}")  # noqa: T201
