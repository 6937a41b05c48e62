"""The content of a page of metrics: the collection of a fleet, of clusters, or of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from kctl.exporter.metric import GroupValue, Metric, OfCluster, OfGroup, Sample, Single
from kctl.fields import qualified
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot

Collection: TypeAlias = FleetSnapshot | ClusterSnapshot
Exposed: TypeAlias = FleetSnapshot | Clusters


def collections_of(snapshot: Exposed) -> tuple[Collection, ...]:
    """In the order of the page; no two have the same type and cluster."""
    return snapshot.clusters if isinstance(snapshot, Clusters) else (snapshot, *snapshot.clusters)


def shown_of(collection: Collection, groups: Sequence[GroupSnapshot]) -> GroupColumns:
    """The partitions of groups that have partition series."""
    partitions, assessments = collection.columns
    is_shown = [group.detail == "partition" for group in groups]
    if all(is_shown):
        return collection.columns
    has_series = partitions.names.spread(np.array(is_shown, np.bool_))
    rows = np.flatnonzero(has_series)
    return GroupColumns(partitions.chosen(partitions.names.only(has_series), rows), assessments.chosen(rows))


def samples_of(metric: Metric, collection: Collection | None, groups: Sequence[GroupSnapshot]) -> Iterable[Sample]:
    """The samples of a metric; none if it does not apply to the collection."""
    match metric:
        case OfGroup():
            of_groups = ((group, sample) for group in groups for sample in metric.samples(group))
            return (((group.cluster, group.group, *labels), value) for group, (labels, value) in of_groups)
        case GroupValue():
            values = ((group, metric.value(group)) for group in groups)
            return (((group.cluster, group.group), value) for group, value in values if value is not None)
        case Single() if isinstance(collection, FleetSnapshot):
            head = (collection.cluster, collection.group)
            samples = metric.samples(collection)
            if collection.hosts is not None and "worker" in metric.labels:  # each host has a worker-0
                host = collection.hosts.host
                samples = (((qualified(host, labels[0]), *labels[1:]), value) for labels, value in samples)
            return ((head + labels, value) for labels, value in samples)
        case OfCluster() if isinstance(collection, ClusterSnapshot):
            return (((collection.cluster, *labels), value) for labels, value in metric.samples(collection))
        case Single() | OfCluster():
            return ()
    raise TypeError(metric)
