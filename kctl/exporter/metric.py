"""The classes of metrics. A metric has a name, labels, a HELP sentence, and a function that reads a snapshot."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kctl.groups.snapshot import ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.columns import Ints, Reals

CLUSTER = ("cluster",)
GROUP = ("cluster", "group")
PARTITION = (*GROUP, "topic", "partition")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values in order, and the value. The renderer adds `cluster` and `group` in front."""
HistogramSample: TypeAlias = tuple[tuple[str, ...], Sequence[int], float]
"""Label values, counts per bucket (not cumulative, the last without a bound), and the sum."""


def single(value: float | None) -> list[Sample]:
    return [] if value is None else [((), value)]


def by_label(values: Mapping[str, float]) -> list[Sample]:
    return [((name,), value) for name, value in values.items()]


def quoted(words: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    labels: tuple[str, ...]
    sentence: str

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn(Metric):
    """A metric with one value per partition. `ABSENT` and NaN mean that the value is unknown."""

    labels: tuple[str, ...] = PARTITION
    values: Callable[[GroupColumns], Ints | Reals | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordColumn(Metric):
    """A metric whose value is always 1. Its last label is a word about the partition, such as the status."""

    values: Callable[[GroupColumns], NDArray[np.int8]]  # indices into `words`, or negative
    words: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Metric):
    labels: tuple[str, ...] = GROUP
    samples: Callable[[FleetSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup(Metric):
    samples: Callable[[GroupSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue(Metric):
    """A metric with one number per group."""

    labels: tuple[str, ...] = GROUP
    value: Callable[[GroupSnapshot], float | None]  # no `Sample`, because tens of thousands of tuples are slow


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCluster(Metric):
    """A metric of each cluster whose groups kctl collects."""

    labels: tuple[str, ...] = CLUSTER
    samples: Callable[[ClusterSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Metric):
    """A histogram of durations. `bounds` are the upper bounds of its buckets."""

    bounds: tuple[float, ...]
    samples: Callable[[FleetSnapshot], Iterable[HistogramSample]]

    @property
    def kind(self) -> str:
        return "histogram"
