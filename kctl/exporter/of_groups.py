"""The metrics of the consumer group as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kctl.exporter.metric import GROUP, GroupValue, Metric, OfGroup, Sample, Single
from kctl.groups.snapshot import GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.verdict import Level
from kctl.status import Status

__all__ = ["METRICS"]

_STATES = ("stable", "preparing_rebalance", "completing_rebalance", "assigning", "reconciling", "empty", "dead")
"""The states of classic groups and of KIP-848."""


def _one(value_of: Callable[[FleetSnapshot], float | None]) -> Callable[[FleetSnapshot], Iterator[Sample]]:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        value = value_of(snapshot)
        if value is not None:
            yield (snapshot.cluster, snapshot.group), value

    return samples


def _lag(group: GroupSnapshot) -> float | None:
    return group.lag.total


def _generation(snapshot: FleetSnapshot) -> float | None:
    return snapshot.member_leader.result.generation


def _members(group: GroupSnapshot) -> float | None:
    return None if group.stats is None else group.stats.members


def _unowned(snapshot: FleetSnapshot) -> float | None:
    return sum(row.worker is None for row in snapshot.partitions) if snapshot.partitions else None


def _age(group: GroupSnapshot) -> float | None:
    return group.age_seconds


def _state(group: GroupSnapshot) -> Iterator[Sample]:
    if group.stats is None:
        return
    if not group.is_own:  # thousands of groups: a series each
        yield (group.cluster, group.group, group.stats.state), 1.0
        return
    for state in dict.fromkeys((*_STATES, group.stats.state)):
        yield (group.cluster, group.group, state), float(state == group.stats.state)


def _status(group: GroupSnapshot) -> Iterator[Sample]:
    if not group.is_own:
        yield (group.cluster, group.group, group.assessment.status.value), 1.0
        return
    for status in Status:
        yield (group.cluster, group.group, status.value), float(status is group.assessment.status)


def _verdict(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for level in Level:
        yield (snapshot.cluster, snapshot.group, level.value), float(level is snapshot.verdict.level)


def _info(group: GroupSnapshot) -> Iterator[Sample]:
    if not group.is_own:
        coordinator = "" if group.coordinator is None else str(group.coordinator)
        yield (group.cluster, group.group, group.type or "", coordinator), 1.0


METRICS: tuple[Metric, ...] = (
    GroupValue(
        name="kctl_group_lag",
        sentence="The sum of the lags that are known.",
        value=_lag,
    ),
    GroupValue(
        name="kctl_group_max_lag_seconds",
        sentence="The greatest `kctl_consumer_lag_seconds` of the group.",
        value=lambda group: group.assessment.lag_seconds,
    ),
    GroupValue(
        name="kctl_group_lag_growth_per_second",
        sentence="By how much the group's lag grows each second; negative while it falls.",
        value=lambda group: group.assessment.growth_per_second,
    ),
    GroupValue(
        name="kctl_group_catchup_seconds",
        sentence="Time until the last partition has caught up; absent while one of them does not.",
        value=lambda group: group.assessment.catchup_seconds,
    ),
    GroupValue(
        name="kctl_group_members",
        sentence="Members of the group as its coordinator counts them, those of other clients included.",
        value=_members,
    ),
    OfGroup(
        name="kctl_group_state",
        labels=(*GROUP, "state"),
        sentence="1 for the state in which the coordinator sees the group, 0 for the others (absent for groups that "
        "are collected as all of their cluster): " + ", ".join(f"`{state}`" for state in _STATES) + ".",
        samples=_state,
    ),
    Single(
        name="kctl_group_generation",
        labels=GROUP,
        sentence="The generation in which the workers are; it changes with each rebalance.",
        samples=_one(_generation),
    ),
    OfGroup(
        name="kctl_group_info",
        labels=(*GROUP, "type", "coordinator"),
        sentence="Always 1, for groups that are collected as all of their cluster: `type` is `classic`, `consumer` "
        "(KIP-848), `share` or `streams` (empty before Kafka 3.8), `coordinator` the broker that coordinates it.",
        samples=_info,
    ),
    OfGroup(
        name="kctl_group_status",
        labels=(*GROUP, "status"),
        sentence="1 for the worst status that any partition of the group has, 0 for the others (absent, as in "
        "`kctl_group_state`): " + ", ".join(f"`{status.value}`" for status in Status) + ". See status.md.",
        samples=_status,
    ),
    Single(
        name="kctl_fleet_verdict",
        labels=(*GROUP, "level"),
        sentence="1 for the verdict on the fleet, 0 for the others: "
        + ", ".join(f"`{each.value}`" for each in Level)
        + ". See status.md.",
        samples=_verdict,
    ),
    Single(
        name="kctl_group_unowned_partitions",
        labels=GROUP,
        sentence="Partitions for which no worker answers.",
        samples=_one(_unowned),
    ),
    GroupValue(
        name="kctl_group_stats_age_seconds",
        sentence="The age of the oldest offsets of a partition when the collection was taken.",
        value=_age,
    ),
)
