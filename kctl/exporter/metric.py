"""A metric: name, type, labels, a sentence, and how its samples follow from a `FleetSnapshot`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kctl.groups.snapshot import ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.columns import Ints, Reals

CLUSTER = ("cluster",)
GROUP = ("cluster", "group")
PARTITION = (*GROUP, "topic", "partition")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""A sample: label values in the order of the metric's labels, and the value. Where a metric makes it, the values of
`cluster` and `group` are left out: those of what it is of are put before it."""
HistogramSample: TypeAlias = tuple[tuple[str, ...], Sequence[int], float]
"""Label values, the counts of a histogram's buckets (not cumulated, the last one without a bound), and the sum."""


def single(value: float | None) -> list[Sample]:
    """Returns a sample without labels of its own; none where the value is not known."""
    return [] if value is None else [((), value)]


def by_label(values: Mapping[str, float]) -> list[Sample]:
    """Returns a sample for each value of the last label."""
    return [((name,), value) for name, value in values.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The fields of every kind of metric. A counter's name is written here as it is exposed, with its `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    labels: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn(Metric):
    """A metric of partitions: the labels are `PARTITION`, the values a column, `ABSENT` or NaN where it is not known;
    None: of none. Partitions are what there may be a hundred thousand of, so these are rendered apart."""

    labels: tuple[str, ...] = PARTITION
    values: Callable[[GroupColumns], Ints | Reals | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordColumn(Metric):
    """A word of every partition, such as its status, in the last label: 1. Otherwise like `PartitionColumn`."""

    values: Callable[[GroupColumns], NDArray[np.int8]]
    """Indices into `words`, or below 0."""
    words: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Metric):
    """A metric of a fleet, whose samples are made one by one."""

    samples: Callable[[FleetSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup(Metric):
    """A metric of a group, the fleet's own or any other."""

    samples: Callable[[GroupSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue(Metric):
    """A metric with one value of every group, None where it is not known. There may be tens of thousands, so these are
    rendered with less ado than samples."""

    labels: tuple[str, ...] = GROUP
    value: Callable[[GroupSnapshot], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCluster(Metric):
    """A metric of a cluster of which all groups are collected."""

    samples: Callable[[ClusterSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Metric):
    """A metric of durations, counted in buckets of these upper bounds."""

    kind: Literal["gauge", "counter", "histogram"] = "histogram"
    bounds: tuple[float, ...]
    samples: Callable[[FleetSnapshot], Iterable[HistogramSample]]
