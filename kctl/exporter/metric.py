"""What a metric is: name, type, labels, unit, a sentence, and how its samples follow from a `FleetSnapshot`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import PartitionRow
from kctl.status import Assessment

__all__ = [
    "CLUSTER",
    "GROUP",
    "PARTITION",
    "Column",
    "Histogram",
    "HistogramSample",
    "Metric",
    "OfCluster",
    "OfGroup",
    "Rows",
    "Sample",
    "Single",
    "WordColumn",
]

CLUSTER = ("cluster",)
GROUP = ("cluster", "group")
PARTITION = (*GROUP, "topic", "partition")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values in the order of the metric's labels, and the value."""
HistogramSample: TypeAlias = tuple[tuple[str, ...], Sequence[int], float]
"""Label values, the counts of the buckets (not cumulated, the last one without a bound), and the sum."""


class Rows(Protocol):
    """Partitions of one group or of many, and how they are doing; a `FleetSnapshot` is that too."""

    @property
    def partitions(self) -> Sequence[PartitionRow]: ...
    @property
    def assessments(self) -> Sequence[Assessment]:
        """One for each partition, or none at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What every kind of metric has. A counter's name is written here as it is exposed, with its `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    labels: tuple[str, ...]
    unit: str
    """`seconds`, `bytes`, `messages`, `offset`, …; `0 or 1` for what is true or not."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Metric):
    """One value of every partition: the labels are `PARTITION`, the values those of `rows.partitions`, in order; None
    where it is not known. Partitions are what there may be a hundred thousand of, so these are rendered apart."""

    labels: tuple[str, ...] = PARTITION
    values: Callable[[Rows], Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordColumn(Metric):
    """One word of every partition, such as its status, in the last label; the sample is 1. Otherwise like `Column`."""

    values: Callable[[Rows], Sequence[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Metric):
    """Samples of a fleet, one by one."""

    samples: Callable[[FleetSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup(Metric):
    """Samples of a group, the fleet's own or any other."""

    samples: Callable[[GroupSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCluster(Metric):
    """Samples of a cluster of which all groups are collected."""

    samples: Callable[[ClusterSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Metric):
    """Durations, counted in buckets of these upper bounds."""

    kind: Literal["gauge", "counter", "histogram"] = "histogram"
    bounds: tuple[float, ...]
    samples: Callable[[FleetSnapshot], Iterable[HistogramSample]]
