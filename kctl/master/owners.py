"""The worker that reads each partition and its state, as the rules of `kctl.status` take them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kctl.rows.partitions import PartitionRow
from kctl.rows.workers import NOT_GROUP_MEMBERS, AgentState, WorkerRow, WorkerStatus
from kctl.status import Owner

_COMING = frozenset({"starting", "backoff"})
_SHARING = frozenset({AgentState.REBALANCING, AgentState.JOINING, AgentState.ASSIGNED})


def owners(
    rows: Iterable[WorkerRow],
    statuses: Iterable[WorkerStatus],
    trigger_seconds: float,
    members: int | None = None,
) -> Callable[[PartitionRow], Owner]:
    """Returns a function from a partition to its owner. `rows` are those of the command `workers`, `statuses` the
    supervisor's; `members` are those that the group's coordinator counts, None if it did not answer."""
    rows, statuses = list(rows), list(statuses)
    paused = {status.name: status.paused for status in statuses if status.paused}
    nobody = Owner(None, _of_fleet(rows, statuses), trigger_seconds, members=members)
    known = {
        row.name: Owner(
            row.name,
            row.state,
            None if row.kind == "attached" else trigger_seconds,  # its queries have triggers of their own
            row.last_batch_seconds,
            row.batch_running_seconds,
        )
        for row in rows
    }

    def owner_of(partition: PartitionRow) -> Owner:
        worker = partition.worker
        if worker is None:
            return nobody
        if worker in paused and any(each.covers(partition.topic, partition.partition) for each in paused[worker]):
            return Owner(worker, "paused", trigger_seconds)
        return known.get(worker) or Owner(worker, None, trigger_seconds)

    return owner_of


def _of_fleet(rows: Iterable[WorkerRow], statuses: Iterable[WorkerStatus]) -> str | None:
    """The state of a fleet that has nobody for a partition: workers are starting, or sharing partitions out anew."""
    states = {row.state for row in rows if row.kind not in NOT_GROUP_MEMBERS}
    if (
        any(status.state in _COMING for status in statuses if status.kind not in NOT_GROUP_MEMBERS)
        or AgentState.STARTING in states
    ):
        return "starting"
    return "rebalancing" if states & _SHARING else None
