"""The metrics of a cluster of which all groups are collected: what was reached, how long ago, how long it took."""

from __future__ import annotations

from kctl.exporter.metric import CLUSTER, Metric, OfCluster, by_label, single

METRICS: tuple[Metric, ...] = (
    OfCluster(
        name="kctl_collect_up",
        labels=(*CLUSTER, "part"),
        sentence="Whether the last poll of all groups of a cluster had all of a part: `groups` (which there are), "
        "`committed`, `members`, `offsets` (of the logs). What failed keeps its last values, which grow older.",
        samples=lambda cluster: by_label({part: float(is_up) for part, is_up in cluster.up.items()}),
    ),
    OfCluster(
        name="kctl_cluster_collect_last_success_timestamp_seconds",
        labels=(*CLUSTER, "part"),
        sentence="When a part of the poll of all groups last succeeded; the parts are those of `kctl_collect_up`.",
        samples=lambda cluster: by_label(cluster.last_success),
    ),
    OfCluster(
        name="kctl_cluster_collect_timestamp_seconds",
        labels=CLUSTER,
        sentence="When the groups of the cluster were last collected, whatever failed then: ages count from there.",
        samples=lambda cluster: single(cluster.taken_at_unix),
    ),
    OfCluster(
        name="kctl_cluster_collect_duration_seconds",
        labels=CLUSTER,
        sentence="How long the last collection of all groups of the cluster took.",
        samples=lambda cluster: single(cluster.collect_seconds),
    ),
    OfCluster(
        name="kctl_cluster_groups",
        labels=CLUSTER,
        sentence="Groups of the cluster that are collected.",
        samples=lambda cluster: single(float(len(cluster.groups)) if cluster.is_ready else None),
    ),
    OfCluster(
        name="kctl_cluster_cut_groups",
        labels=CLUSTER,
        sentence="Groups whose partitions have no series of their own because of `exporter.max_partitions`.",
        samples=lambda cluster: single(float(cluster.cut_groups)),
    ),
)
