"""Who reads each partition and what he is doing, as the rules of `kctl.status` want to know it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kctl.master.snapshot import WorkerStatus
from kctl.reduce import PartitionRow
from kctl.status import Owner

__all__ = ["owners"]

_COMING = frozenset({"starting", "backoff"})


def owners(
    rows: Iterable[Mapping[str, Any]], statuses: Iterable[WorkerStatus], trigger_seconds: float
) -> Callable[[PartitionRow], Owner]:
    """From a partition to its owner. `rows` are those of the command `workers`, `statuses` the supervisor's."""
    named = {str(row.get("name")): row for row in rows}
    statuses = list(statuses)
    paused = {status.name: status.paused for status in statuses if status.paused}
    nobody = Owner(None, _of_fleet(named.values(), statuses), trigger_seconds)
    known = {name: _owner(name, row, trigger_seconds) for name, row in named.items()}

    def owner_of(partition: PartitionRow) -> Owner:
        if partition.worker is None:
            return nobody
        owner = known.get(partition.worker) or Owner(partition.worker, None, trigger_seconds)
        if partition.worker in paused and _is_among(paused[partition.worker], partition):
            return Owner(owner.name, "paused", trigger_seconds)
        return owner

    return owner_of


def _owner(name: str, row: Mapping[str, Any], trigger_seconds: float) -> Owner:
    return Owner(
        name,
        row.get("state") if isinstance(row.get("state"), str) else None,
        trigger_seconds,
        _seconds(row.get("last_batch_seconds")),
        _seconds(row.get("batch_running_seconds")),
    )


def _of_fleet(rows: Iterable[Mapping[str, Any]], statuses: Iterable[WorkerStatus]) -> str | None:
    """What a fleet does that has nobody for a partition: workers are starting, or sharing partitions out anew."""
    states = {row.get("state") for row in rows if row.get("kind") != "sinker"}
    if any(status.state in _COMING for status in statuses if status.kind != "sinker") or "starting" in states:
        return "starting"
    return "rebalancing" if states & {"rebalancing", "joining", "assigned"} else None


def _is_among(paused: Iterable[Mapping[str, Any]], partition: PartitionRow) -> bool:
    return any(
        each.get("topic") in (None, partition.topic) and each.get("partition") in (None, partition.partition)
        for each in paused
    )


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
