"""The same metrics for a prometheus_client registry, so that a page can be shared with metrics of somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kctl.exporter.metric import Column, Histogram, Metric, Sample, Single, WordColumn
from kctl.exporter.metrics import METRICS
from kctl.master.snapshot import FleetSnapshot

__all__ = ["SnapshotCollector"]


class SnapshotCollector(Collector):
    """`registry.register(SnapshotCollector(latest))` and a page of that registry has our samples beside its own.

    `latest` gives the last snapshot, None before the first; it is called with each scrape, on the scrape's thread.
    """

    def __init__(self, latest: Callable[[], FleetSnapshot | None], metrics: Sequence[Metric] = METRICS) -> None:
        self._latest = latest
        self._metrics = metrics

    def describe(self) -> list[Family]:
        """Nothing: what there is changes with each snapshot, so the registry need not look for names used twice."""
        return []

    def collect(self) -> Iterator[Family]:
        snapshot = self._latest()
        if snapshot is not None:
            for metric in self._metrics:
                family = _family(metric, snapshot)
                if family.samples:
                    yield family


def _family(metric: Metric, snapshot: FleetSnapshot) -> Family:
    samples: Iterable[Sample]
    match metric:
        case Histogram():
            histogram = HistogramMetricFamily(metric.name, metric.sentence, labels=metric.labels)
            for labels, counts, total in metric.samples(snapshot):
                bounds = [*map(str, metric.bounds), "+Inf"]
                buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
                histogram.add_metric(labels, buckets, total)
            return histogram
        case Column():
            samples = _column(metric, snapshot)
        case WordColumn():
            samples = _words(metric, snapshot)
        case Single():
            samples = metric.samples(snapshot)
        case _:
            raise TypeError(metric)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.sentence, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _column(metric: Column, snapshot: FleetSnapshot) -> Iterator[Sample]:
    before = (snapshot.group,) if "consumergroup" in metric.labels else (snapshot.cluster, snapshot.group)
    for row, value in zip(snapshot.partitions, metric.values(snapshot), strict=True):
        if value is not None:
            yield (*before, row.topic, str(row.partition)), value


def _words(metric: WordColumn, snapshot: FleetSnapshot) -> Iterator[Sample]:
    for row, word in zip(snapshot.partitions, metric.values(snapshot), strict=True):
        if word is not None:
            yield (snapshot.cluster, snapshot.group, row.topic, str(row.partition), word), 1.0
