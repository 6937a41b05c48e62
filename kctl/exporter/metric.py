"""What a metric is: name, type, labels, unit, a sentence, and how its samples follow from a `FleetSnapshot`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kctl.master.snapshot import FleetSnapshot

__all__ = ["GROUP", "PARTITION", "Column", "Histogram", "HistogramSample", "Metric", "Sample", "Single", "WordColumn"]

GROUP = ("cluster", "group")
PARTITION = (*GROUP, "topic", "partition")

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values in the order of the metric's labels, and the value."""
HistogramSample: TypeAlias = tuple[tuple[str, ...], Sequence[int], float]
"""Label values, the counts of the buckets (not cumulated, the last one without a bound), and the sum."""


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
    """One value of every partition: the labels are `PARTITION`, the values those of `snapshot.partitions`, in order;
    None where it is not known. Partitions are what there may be a hundred thousand of, so these are rendered apart."""

    labels: tuple[str, ...] = PARTITION
    values: Callable[[FleetSnapshot], Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordColumn(Metric):
    """One word of every partition, such as its status, in the last label; the sample is 1. Otherwise like `Column`."""

    values: Callable[[FleetSnapshot], Sequence[str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Metric):
    """Samples one by one."""

    samples: Callable[[FleetSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Metric):
    """Durations, counted in buckets of these upper bounds."""

    kind: Literal["gauge", "counter", "histogram"] = "histogram"
    bounds: tuple[float, ...]
    samples: Callable[[FleetSnapshot], Iterable[HistogramSample]]
