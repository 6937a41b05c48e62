"""The partitions of a collection whose series are shown, by the column, whichever way the collection has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kctl.groups.partitions import PartitionRows
from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.rows.partitions import PartitionRow
from kctl.status import Assessment
from kctl.status.assessments import Assessments
from kctl.status.assessor import ints
from kctl.status.history import ABSENT
from kctl.status.judgements import NUMBERS
from kctl.status.observations import Ints, Reals

UNASSESSED = -1


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of partitions: two of the same partitions have the same labels."""

    cluster: str
    groups: list[tuple[str, int]]
    """Groups, each with its number of partitions."""
    partitions: Sequence[tuple[str, int]]
    """Topic and number of each partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The values of partitions, as columns of the same length. What is not known is `ABSENT`, NaN or `UNASSESSED`."""

    start: Ints
    committed: Ints
    position: Ints
    end: Ints
    lag: Ints
    share_lag: Ints
    status: NDArray[np.int8]
    """Indices into `STATUSES`."""
    lag_seconds: Reals
    growth_per_second: Reals
    catchup_seconds: Reals
    oldest_unhandled_seconds: Reals


def rows_of(collection: ClusterSnapshot | None, cluster: str, groups: Sequence[GroupSnapshot]) -> tuple[Labels, Rows]:
    """Labels and values of the partitions of `groups`, those of `collection` that have series of their partitions."""
    labelled = [(each.group, len(each.partitions)) for each in groups]
    if collection is not None and collection.columns is not None and len(groups) == len(collection.groups):
        partitions, assessments = collection.columns
        return Labels(cluster, labelled, partitions.names.keys), _of_columns(partitions.all(), assessments)
    keys = [row[:2] for group in groups for row in _keys(group.partitions)]
    return Labels(cluster, labelled, keys), _joined([_of_group(each) for each in groups])


def _keys(rows: Sequence[PartitionRow]) -> Iterable[tuple[Any, ...]]:
    return rows.names() if isinstance(rows, PartitionRows) else rows


def _of_group(group: GroupSnapshot) -> Rows:
    rows, assessments = group.partitions, group.assessments
    if isinstance(rows, PartitionRows) and isinstance(assessments, Assessments):
        return _of_columns(rows, assessments)
    status, *seconds = _assessed(assessments, len(rows))
    return Rows(
        ints(row.start for row in rows),
        ints(row.committed for row in rows),
        ints(row.position for row in rows),
        ints(row.end for row in rows),
        ints(row.lag for row in rows),
        ints(row.share_lag for row in rows),
        status,
        *seconds,
    )


def _of_columns(rows: PartitionRows, assessments: Assessments) -> Rows:
    columns, unknown = rows.columns, np.broadcast_to(np.int64(ABSENT), len(rows))  # of no size in memory
    seconds = [*map(assessments.column, ("lag_seconds", "growth_per_second", "catchup_seconds"))]
    seconds.append(np.broadcast_to(np.float64(np.nan), len(rows)))  # handlers of other groups are not known
    return Rows(
        columns.start,
        columns.committed,
        unknown,
        columns.end,
        columns.lag,
        unknown if rows.share_lag is None else rows.share_lag,
        assessments.status,
        *seconds,
    )


def _assessed(assessments: Sequence[Assessment], size: int) -> tuple[NDArray[np.int8], Reals, Reals, Reals, Reals]:
    if not assessments:
        unknown = np.full(size, np.nan)
        return np.full(size, UNASSESSED, np.int8), unknown, unknown, unknown, unknown
    return (
        np.array([NUMBERS[each.status] for each in assessments], np.int8),
        np.array([each.lag_seconds for each in assessments], np.float64),
        np.array([each.growth_per_second for each in assessments], np.float64),
        np.array([each.catchup_seconds for each in assessments], np.float64),
        np.array([each.oldest_unhandled_seconds for each in assessments], np.float64),
    )


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    empty = _of_group(GroupSnapshot("", ""))
    columns = [[getattr(part, each.name) for part in (empty, *parts)] for each in fields(Rows)]
    return Rows(*map(np.concatenate, columns))
