"""The summary of a demo: its counts, whether it passed, and how to print it."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kctl.demo.audit import Audit
from kctl_agent.storage.kinds import KINDS


@dataclass(frozen=True)
class DemoOptions:
    """The options of `kctl demo`. If `seconds` is None, the demo runs until Ctrl-C."""

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
    lag: int | None = None
    largest_lag: int | None = None
    seconds_to_first_batch: float | None = None
    committed: int = 0
    handled: int | None = None
    """Messages that the present sinkers have handled; None without sinkers."""

    @property
    def since(self) -> str:
        return f"{time.monotonic() - self.started_at:.1f} s"

    def take(self, offsets: list[dict[str, Any]], workers: list[dict[str, Any]]) -> None:
        known = [row["remaining_count"] for row in offsets if row["remaining_count"] is not None]
        self.lag = sum(known) if known else None
        if self.lag is not None:
            self.largest_lag = max(self.largest_lag or 0, self.lag)
        self.committed = sum(row["current_offset"] or 0 for row in offsets)
        if self.seconds_to_first_batch is None and any(
            row["batches_total"] for row in workers if row["kind"] == "worker"
        ):
            self.seconds_to_first_batch = time.monotonic() - self.started_at
        sinkers = [row["sinker"] for row in workers if row.get("sinker")]
        self.handled = sum(each["handled"] for each in sinkers) if sinkers else None

    def words(self, produced: int) -> list[str]:
        numbers = {"produced": produced, "committed": self.committed, "lag": self.lag}
        numbers |= {} if self.handled is None else {"handled": self.handled}
        return [*(f"{name} {'-' if each is None else f'{each:,}'}" for name, each in numbers.items()), self.since]


def in_words(workers: list[dict[str, Any]]) -> str:
    """Returns the state of each process: `worker-0 running 1101 rows/s, worker-1 starting`."""
    return ", ".join(
        f"{row['name']} {row['state'] or 'starting'}"
        + ("" if row["rows_per_second"] is None else f" {row['rows_per_second']:.0f} rows/s")
        for row in workers
    )


def summary(
    found: Audit | None,
    progress: DemoProgress,
    produced: int,
    not_acknowledged: int,
    options: DemoOptions,
    ended: str | None = None,
) -> dict[str, Any]:
    """Returns what `-o json` prints. Unknown values are None. If `found` is None, all counts of `Audit` except
    `produced` are None. `ended` describes a process that has ended by itself."""
    counts = dict.fromkeys(each.name for each in fields(Audit)) if found is None else asdict(found)
    first = progress.seconds_to_first_batch
    return {
        **counts,
        "produced": produced,
        "largest_lag": progress.largest_lag,
        "seconds_to_first_batch": None if first is None else round(first, 2),
        "seconds": round(time.monotonic() - progress.started_at, 1),
        **{name: getattr(options, name) for name in ("workers", "sinkers", "partitions", "storage")},
        "not_acknowledged": not_acknowledged,
        "ended_by_itself": ended,
    }


def has_passed(summary: Mapping[str, Any], options: DemoOptions) -> bool:
    """Whether no process ended by itself and all messages were stored once. With a handler, all must be handled."""
    if summary["ended_by_itself"] is not None:
        return False
    is_stored = summary["lost"] == summary["duplicated"] == 0 and summary["stored"] == summary["produced"]
    is_handled = summary["handled"] == summary["produced"] and summary["dead"] == 0
    return bool(is_stored and (is_handled or not options.is_handled))


def show(summary: Mapping[str, Any], output: str, place: Path, *, is_handled: bool, passed: bool) -> None:
    if output == "json":
        print(json.dumps(summary), flush=True)  # noqa: T201
        if not passed:
            print(f"kctl: all of the demo is kept in {place}", file=sys.stderr)  # noqa: T201
        return
    names = ["produced", "stored", "lost", "duplicated"] + ["not_stored"] * (summary["not_stored"] != 0)
    if is_handled:
        names += ["handled", "handled_again", "dead"]
    for name in (*names, "largest_lag", "seconds_to_first_batch"):
        value = summary[name]
        print(f"{name.replace('_', '-'):<24}{'-' if value is None else f'{value:,}':>12}")  # noqa: T201
    if summary["ended_by_itself"] is not None:
        print(f"{summary['ended_by_itself']}; all of the demo is kept in {place}")  # noqa: T201
    elif not passed:
        what = "stored exactly once" + (" and handled" if is_handled else "")
        print(f"not everything that was produced is {what}; all of the demo is kept in {place}")  # noqa: T201
