"""What a page of metrics is made of: the collection of a fleet, of clusters, or of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from kctl.exporter.metric import Metric, OfCluster, OfGroup, Sample, Single
from kctl.groups.snapshot import Clusters, ClusterSnapshot, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import PartitionRow
from kctl.status import UNKNOWN, Assessment

__all__ = [
    "Collection",
    "Exposed",
    "FlatRows",
    "collections_of",
    "flat_rows",
    "groups_of",
    "samples_of",
    "with_partitions",
]

Collection: TypeAlias = FleetSnapshot | ClusterSnapshot
Exposed: TypeAlias = FleetSnapshot | Clusters


class FlatRows(NamedTuple):
    """The partitions of all groups of a collection, one group after the other."""

    partitions: Sequence[PartitionRow]
    assessments: Sequence[Assessment]


def collections_of(snapshot: Exposed) -> tuple[Collection, ...]:
    """In the order in which they are on the page; no two have the same type and cluster."""
    return snapshot.clusters if isinstance(snapshot, Clusters) else (snapshot, *snapshot.clusters)


def groups_of(collection: Collection) -> tuple[GroupSnapshot, ...]:
    return (collection.own_group,) if isinstance(collection, FleetSnapshot) else collection.groups


def with_partitions(groups: Sequence[GroupSnapshot]) -> Sequence[GroupSnapshot]:
    """Those whose partitions have series."""
    return [group for group in groups if group.detail == "partition"]


def flat_rows(groups: Sequence[GroupSnapshot]) -> FlatRows:
    """Of partitions that were not assessed the assessment is unknown, where any other was."""
    if len(groups) == 1:
        return FlatRows(groups[0].partitions, groups[0].assessments)
    rows = list(chain.from_iterable(each.partitions for each in groups))
    assessments = chain.from_iterable(each.assessments or (UNKNOWN,) * len(each.partitions) for each in groups)
    return FlatRows(rows, list(assessments))


def samples_of(metric: Metric, collection: Collection | None, groups: Sequence[GroupSnapshot]) -> Iterable[Sample]:
    """The samples of a metric that are given one by one; none where it is of something else than the collection."""
    match metric:
        case OfGroup():
            return chain.from_iterable(map(metric.samples, groups))
        case Single():
            return metric.samples(collection) if isinstance(collection, FleetSnapshot) else ()
        case OfCluster():
            return metric.samples(collection) if isinstance(collection, ClusterSnapshot) else ()
    raise TypeError(metric)
