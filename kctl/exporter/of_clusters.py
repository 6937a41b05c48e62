"""The metrics of a cluster of which all groups are collected: what was reached, how long ago, how long it took."""

from __future__ import annotations

from collections.abc import Iterator

from kctl.exporter.metric import CLUSTER, Metric, OfCluster, Sample
from kctl.groups.snapshot import ClusterSnapshot

__all__ = ["METRICS"]


def _up(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for part, is_up in cluster.up.items():
        yield (cluster.cluster, part), float(is_up)


def _last_success(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for part, at in cluster.last_success.items():
        yield (cluster.cluster, part), at


def _duration(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.cluster,), cluster.collect_seconds


def _taken_at(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.cluster,), cluster.taken_at_unix


def _groups(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.is_ready:
        yield (cluster.cluster,), float(len(cluster.groups))


def _cut_groups(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.cluster,), float(cluster.cut_groups)


METRICS: tuple[Metric, ...] = (
    OfCluster(
        name="kctl_collect_up",
        labels=(*CLUSTER, "part"),
        sentence="Whether the last poll of all groups of a cluster had all of a part: `groups` (which there are), "
        "`committed`, `members`, `offsets` (of the logs). What failed keeps its last values, which grow older.",
        samples=_up,
    ),
    OfCluster(
        name="kctl_cluster_collect_last_success_timestamp_seconds",
        labels=(*CLUSTER, "part"),
        sentence="When a part of the poll of all groups last succeeded; the parts are those of `kctl_collect_up`.",
        samples=_last_success,
    ),
    OfCluster(
        name="kctl_cluster_collect_timestamp_seconds",
        labels=CLUSTER,
        sentence="When the groups of the cluster were last collected, whatever failed then: ages count from there.",
        samples=_taken_at,
    ),
    OfCluster(
        name="kctl_cluster_collect_duration_seconds",
        labels=CLUSTER,
        sentence="How long the last collection of all groups of the cluster took.",
        samples=_duration,
    ),
    OfCluster(
        name="kctl_cluster_groups",
        labels=CLUSTER,
        sentence="Groups of the cluster that are collected.",
        samples=_groups,
    ),
    OfCluster(
        name="kctl_cluster_cut_groups",
        labels=CLUSTER,
        sentence="Groups whose partitions have no series of their own because of `exporter.max_partitions`.",
        samples=_cut_groups,
    ),
)
