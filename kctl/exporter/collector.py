"""The same metrics for a prometheus_client registry, so that a page can be shared with metrics of somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kctl.exporter.exposed import Collection, Exposed, collections_of, groups_of, samples_of, with_partitions
from kctl.exporter.metric import Column, Histogram, Metric, Sample, WordColumn
from kctl.exporter.metrics import METRICS
from kctl.groups.snapshot import GroupSnapshot
from kctl.master.snapshot import FleetSnapshot

__all__ = ["SnapshotCollector"]


class SnapshotCollector(Collector):
    """`registry.register(SnapshotCollector(latest))` and a page of that registry has our samples beside its own.

    `latest` gives the last snapshot, None before the first; it is called with each scrape, on the scrape's thread.
    """

    def __init__(self, latest: Callable[[], Exposed | None], metrics: Sequence[Metric] = METRICS) -> None:
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


def _family(metric: Metric, snapshot: Exposed) -> Family:
    if isinstance(metric, Histogram):
        return _histogram(metric, snapshot)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.sentence, labels=metric.labels)
    for collection in collections_of(snapshot):
        for labels, value in _samples(metric, collection):
            family.add_metric(labels, value)
    return family


def _histogram(metric: Histogram, snapshot: Exposed) -> Family:
    histogram = HistogramMetricFamily(metric.name, metric.sentence, labels=metric.labels)
    for labels, counts, total in metric.samples(snapshot) if isinstance(snapshot, FleetSnapshot) else ():
        bounds = [*map(str, metric.bounds), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
        histogram.add_metric(labels, buckets, total)
    return histogram


def _samples(metric: Metric, collection: Collection) -> Iterable[Sample]:
    groups = groups_of(collection)
    match metric:
        case Column():
            return (sample for group in with_partitions(groups) for sample in _column(metric, group))
        case WordColumn():
            return (sample for group in with_partitions(groups) for sample in _words(metric, group))
    return samples_of(metric, collection, groups)


def _column(metric: Column, group: GroupSnapshot) -> Iterator[Sample]:
    for row, value in zip(group.partitions, metric.values(group), strict=True):
        if value is not None:
            yield (group.cluster, group.group, row.topic, str(row.partition)), value


def _words(metric: WordColumn, group: GroupSnapshot) -> Iterator[Sample]:
    for row, word in zip(group.partitions, metric.values(group), strict=True):
        if word is not None:
            yield (group.cluster, group.group, row.topic, str(row.partition), word), 1.0
