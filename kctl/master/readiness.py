"""Whether a fleet does its work, by a snapshot of it, and why not; pure but for the clocks of `Readiness`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kctl.master.snapshot import FleetSnapshot
from kctl.rows.workers import WorkerRow
from kctl.status import Status

__all__ = ["Readiness", "not_ready"]

_TROUBLE = (Status.STALLED, Status.STOPPED, Status.LOSING)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Of the last snapshot."""

    latest: Callable[[], FleetSnapshot | None]
    max_age_seconds: float
    """A collection, or a poll of the brokers, that is older than this is too old to be ready."""
    clock: Callable[[], float] = time.monotonic
    unix_clock: Callable[[], float] = time.time

    def reasons(self) -> list[str]:
        """Why the fleet does not do its work; empty when it does."""
        snapshot = self.latest()
        if snapshot is None:
            return ["the first collection is not finished yet"]
        return not_ready(snapshot, self.clock(), self.unix_clock(), self.max_age_seconds)


def not_ready(snapshot: FleetSnapshot, now: float, now_unix: float, max_age_seconds: float) -> list[str]:
    """Why the fleet does not do its work: brokers not reached, a worker that should run does not or cannot store,
    partitions stand still. Empty when it does."""
    reasons = []
    age = now - snapshot.taken_at
    if age > max_age_seconds:
        reasons.append(f"the last collection is {age:.0f} s old")
    reasons += _old_snapshots(snapshot, now_unix, max_age_seconds)
    reasons += [
        f"{worker.name} is {worker.state}"
        for worker in snapshot.supervised
        if worker.desired == "running" and worker.state != "running"
    ]
    reasons += [f"{row.name}: {row.last_error}" for row in _supervised_workers(snapshot) if row.last_error]
    standing = sum(assessment.status in _TROUBLE for assessment in snapshot.assessments)
    if standing:
        reasons.append(snapshot.group_assessment.reason)
    return reasons


def _supervised_workers(snapshot: FleetSnapshot) -> list[WorkerRow]:
    """Those that should run; a sinker's last error is a message's, an attached application's its own."""
    return [
        row
        for row in snapshot.workers.result.rows
        if row.kind == "worker" and row.supervisor is not None and row.supervisor.desired == "running"
    ]


def _old_snapshots(snapshot: FleetSnapshot, now_unix: float, max_age_seconds: float) -> list[str]:
    """What the brokers have not answered for too long; parts of one age share a sentence."""
    ages: dict[str | None, list[str]] = {}
    for part, name in (("committed", "committed"), ("offsets", "end")):
        at = snapshot.last_success.get(part)
        if at is None:
            ages.setdefault(None, []).append(name)
        elif now_unix - at > max_age_seconds:
            ages.setdefault(f"{now_unix - at:.0f} s old", []).append(name)
    return [
        f"the brokers' {' and '.join(names)} offsets are {'not known yet' if age is None else age}"
        for age, names in ages.items()
    ]
