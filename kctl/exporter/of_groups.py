"""Metrics of consumer groups, and of the clusters whose groups kctl collects."""

from collections.abc import Iterable

from kctl.exporter.metric import (
    CLUSTER,
    GROUP,
    GroupValue,
    Metric,
    OfCluster,
    OfGroup,
    Sample,
    Single,
    by_label,
    quoted,
    single,
)
from kctl.groups.snapshot import GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.verdict import Level
from kctl.status import Status

_STATES = ("stable", "preparing_rebalance", "completing_rebalance", "assigning", "reconciling", "empty", "dead")


def _unowned(snapshot: FleetSnapshot) -> float | None:
    size = len(snapshot.partitions)
    unread = snapshot.offset_checker.result.listed("worker", None)[:size].count(None)
    return unread - snapshot.own_assessments.statuses().count(Status.ELSEWHERE) if size else None


def _one_of(group: GroupSnapshot, words: Iterable[str], current: str) -> list[Sample]:
    return by_label({word: float(word == current) for word in words} if group.is_own else {current: 1.0})


def _info(group: GroupSnapshot) -> list[Sample]:
    coordinator = "" if group.coordinator is None else str(group.coordinator)
    return [] if group.is_own else [((group.type or "", coordinator), 1.0)]


def _findings(snapshot: FleetSnapshot) -> list[Sample]:
    found = {(each.level.value, each.about) for each in (snapshot.verdict.main, *snapshot.verdict.also)}
    return [(labels, 1.0) for labels in sorted(found) if labels[0] != Level.OK]


METRICS: tuple[Metric, ...] = (
    GroupValue(
        name="kctl_group_lag", sentence="The sum of the partitions' known lags.", value=lambda group: group.lag.total
    ),
    GroupValue(
        name="kctl_group_behind_transaction",
        sentence="Messages that open transactions withhold. The lag does not include them. Only for the fleet's own "
        "group, if `kafka.isolation_level` is `read_committed`.",
        value=lambda group: group.lag.behind_transaction,
    ),
    GroupValue(
        name="kctl_group_max_lag_seconds",
        sentence="The largest `kctl_consumer_lag_seconds` of the group.",
        value=lambda group: group.assessment.lag_seconds,
    ),
    Single(
        name="kctl_oldest_unhandled_seconds",
        sentence="The age of the fleet's oldest unhandled message, in Kafka or in the storage. Absent if either age "
        "is unknown.",
        samples=lambda snapshot: single(snapshot.group_assessment.oldest_unhandled_seconds),
    ),
    Single(
        name="kctl_oldest_unhandled_limit_seconds",
        sentence="The age above which the fleet is `degraded`, unless the age falls: `status.oldest_limit`.",
        samples=lambda snapshot: single(snapshot.unhandled.limit_seconds),
    ),
    GroupValue(
        name="kctl_group_lag_growth_per_second",
        sentence="The growth of the group's lag per second. Negative while the lag falls.",
        value=lambda group: group.assessment.growth_per_second,
    ),
    GroupValue(
        name="kctl_group_catchup_seconds",
        sentence="The time until the last partition has caught up. Absent while the lag of any partition does not "
        "fall.",
        value=lambda group: group.assessment.catchup_seconds,
    ),
    GroupValue(
        name="kctl_group_members",
        sentence="Members of the group according to its coordinator, including those of other clients.",
        value=lambda group: None if group.stats is None else group.stats.members,
    ),
    OfGroup(
        name="kctl_group_state",
        labels=(*GROUP, "state"),
        sentence="1 for the state of the group in its coordinator, 0 for other states. For groups other than a "
        f"fleet's own, other states are absent. The states are {quoted(_STATES)}.",
        samples=lambda group: _one_of(group, (*_STATES, group.stats.state), group.stats.state) if group.stats else [],
    ),
    Single(
        name="kctl_group_generation",
        sentence="The workers' generation. It changes with each rebalance.",
        samples=lambda snapshot: single(snapshot.member_leader.result.generation),
    ),
    OfGroup(
        name="kctl_group_info",
        labels=(*GROUP, "type", "coordinator"),
        sentence="Always 1, for groups other than a fleet's own. `type` is `classic`, `consumer` (KIP-848), `share` "
        "or `streams`, or empty before Kafka 3.8. `coordinator` is the broker that coordinates the group.",
        samples=_info,
    ),
    OfGroup(
        name="kctl_group_status",
        labels=(*GROUP, "status"),
        sentence="1 for the worst status of any partition of the group, 0 for other statuses of "
        "`kctl_consumer_status`. For groups other than a fleet's own, other statuses are absent.",
        samples=lambda group: _one_of(group, [each.value for each in Status], group.assessment.status.value),
    ),
    Single(
        name="kctl_fleet_verdict",
        labels=(*GROUP, "level"),
        sentence=f"1 for the verdict on the fleet, 0 for other verdicts. The verdicts are {quoted(Level)} (status.md).",
        samples=lambda snapshot: by_label({each.value: float(each is snapshot.verdict.level) for each in Level}),
    ),
    Single(
        name="kctl_fleet_finding",
        labels=(*GROUP, "level", "about"),
        sentence="Always 1, for each finding of the verdict on the fleet. `about` is the part of the fleet in "
        "trouble, such as `storage` (docs/runbooks/KctlFleetFailing.md). Absent while the fleet is `ok`.",
        samples=_findings,
    ),
    Single(
        name="kctl_fleet_works",
        labels=(*GROUP, "about"),
        sentence="Always 1, for each part of the work that this host can do for all hosts: `engine`, `workers`, and "
        "`sinkers` if the hosts share a storage. Absent with one host. While one host does a part of the work, "
        "another host's finding about this part does not make the fleet `failing`.",
        samples=lambda snapshot: by_label(dict.fromkeys(snapshot.verdict.works, 1.0)),
    ),
    Single(
        name="kctl_group_unowned_partitions",
        sentence="Partitions that no answering worker of any host owns.",
        samples=lambda snapshot: single(_unowned(snapshot)),
    ),
    GroupValue(
        name="kctl_group_stats_age_seconds",
        sentence="The age of the oldest partition offsets, at the time of the collection.",
        value=lambda group: group.age_seconds,
    ),
    OfCluster(
        name="kctl_collect_up",
        labels=(*CLUSTER, "part"),
        sentence="Whether the last poll of all groups of a cluster fetched a part completely: `groups` (their "
        "list), `committed`, `members` or `offsets` (of the logs). A failed part keeps its last values, and their age "
        "grows.",
        samples=lambda cluster: by_label({part: float(is_up) for part, is_up in cluster.up.items()}),
    ),
    OfCluster(
        name="kctl_cluster_collect_last_success_timestamp_seconds",
        labels=(*CLUSTER, "part"),
        sentence="When a part of the poll of all groups last succeeded. The parts are those of `kctl_collect_up`.",
        samples=lambda cluster: by_label(cluster.last_success),
    ),
    OfCluster(
        name="kctl_cluster_collect_timestamp_seconds",
        sentence="When the groups of the cluster were last collected, even if parts failed. kctl computes ages from "
        "this time.",
        samples=lambda cluster: single(cluster.taken_at_unix),
    ),
    OfCluster(
        name="kctl_cluster_collect_duration_seconds",
        sentence="The duration of the last collection of all groups of the cluster.",
        samples=lambda cluster: single(cluster.collect_seconds),
    ),
    OfCluster(
        name="kctl_cluster_groups",
        sentence="Collected groups of the cluster.",
        samples=lambda cluster: single(float(len(cluster.groups)) if cluster.is_ready else None),
    ),
    OfCluster(
        name="kctl_cluster_cut_groups",
        sentence="Groups without series for partitions because of `exporter.max_partitions`.",
        samples=lambda cluster: single(float(cluster.cut_groups)),
    ),
)
