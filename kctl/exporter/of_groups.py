"""The metrics of the consumer group as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kctl.exporter.metric import GROUP, Metric, Sample, Single
from kctl.master.snapshot import FleetSnapshot
from kctl.status import Status

__all__ = ["METRICS"]

_STATES = ("stable", "preparing_rebalance", "completing_rebalance", "assigning", "reconciling", "empty", "dead")
"""Those of classic groups and of KIP-848."""


def _one(value_of: Callable[[FleetSnapshot], float | None]) -> Callable[[FleetSnapshot], Iterator[Sample]]:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        value = value_of(snapshot)
        if value is not None:
            yield (snapshot.cluster, snapshot.group), value

    return samples


def _lag(snapshot: FleetSnapshot) -> float | None:
    return snapshot.kafka_lag.total


def _generation(snapshot: FleetSnapshot) -> float | None:
    return snapshot.member_leader.result.generation


def _members(snapshot: FleetSnapshot) -> float | None:
    return None if snapshot.broker_group is None else snapshot.broker_group.members


def _unowned(snapshot: FleetSnapshot) -> float | None:
    return sum(row.worker is None for row in snapshot.partitions) if snapshot.partitions else None


def _age(snapshot: FleetSnapshot) -> float | None:
    return max((row.age_seconds for row in snapshot.partitions), default=None)


def _state(snapshot: FleetSnapshot) -> Iterator[Sample]:
    if snapshot.broker_group is not None:
        for state in dict.fromkeys((*_STATES, snapshot.broker_group.state)):
            yield (snapshot.cluster, snapshot.group, state), float(state == snapshot.broker_group.state)


def _status(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for status in Status:
        is_it = status is snapshot.group_assessment.status
        yield (snapshot.cluster, snapshot.group, status.value), float(is_it)


METRICS: tuple[Metric, ...] = (
    Single(
        name="kctl_group_lag",
        labels=GROUP,
        unit="messages",
        sentence="The sum of the lags that are known.",
        samples=_one(_lag),
    ),
    Single(
        name="kctl_group_max_lag_seconds",
        labels=GROUP,
        unit="seconds",
        sentence="The greatest `kctl_consumer_lag_seconds` of the group.",
        samples=_one(lambda snapshot: snapshot.group_assessment.lag_seconds),
    ),
    Single(
        name="kctl_group_lag_growth_per_second",
        labels=GROUP,
        unit="messages per second",
        sentence="By how much the group's lag grows each second; negative while it falls.",
        samples=_one(lambda snapshot: snapshot.group_assessment.growth_per_second),
    ),
    Single(
        name="kctl_group_catchup_seconds",
        labels=GROUP,
        unit="seconds",
        sentence="Time until the last partition has caught up; absent while one of them does not.",
        samples=_one(lambda snapshot: snapshot.group_assessment.catchup_seconds),
    ),
    Single(
        name="kctl_group_members",
        labels=GROUP,
        unit="members",
        sentence="Members of the group as its coordinator counts them, those of other clients included.",
        samples=_one(_members),
    ),
    Single(
        name="kctl_group_state",
        labels=(*GROUP, "state"),
        unit="0 or 1",
        sentence="1 for the state in which the coordinator sees the group, 0 for the others: "
        + ", ".join(f"`{state}`" for state in _STATES)
        + ".",
        samples=_state,
    ),
    Single(
        name="kctl_group_generation",
        labels=GROUP,
        unit="generation",
        sentence="The generation in which the workers are; it changes with each rebalance.",
        samples=_one(_generation),
    ),
    Single(
        name="kctl_group_status",
        labels=(*GROUP, "status"),
        unit="0 or 1",
        sentence="1 for the worst status that any partition of the group has, 0 for the others: "
        + ", ".join(f"`{status.value}`" for status in Status)
        + ". See status.md.",
        samples=_status,
    ),
    Single(
        name="kctl_group_unowned_partitions",
        labels=GROUP,
        unit="partitions",
        sentence="Partitions for which no worker answers.",
        samples=_one(_unowned),
    ),
    Single(
        name="kctl_group_stats_age_seconds",
        labels=GROUP,
        unit="seconds",
        sentence="The age of the oldest offsets of a partition when the collection was taken.",
        samples=_one(_age),
    ),
)
