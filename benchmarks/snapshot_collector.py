"""A collector for a prometheus_client registry, to compare that library's rendering of our metrics with our pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kctl.exporter import METRICS
from kctl.exporter.metric import GroupValue, Histogram, Metric, PartitionColumn, Sample, WordColumn
from kctl.exporter.text import Collection, Exposed, collections_of, samples_of, shown_of
from kctl.groups.snapshot import GroupColumns
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.columns import ABSENT


class SnapshotCollector(Collector):
    """`registry.register(SnapshotCollector(latest))` adds our samples to that registry's page.

    `latest` returns the last snapshot, None before the first; each scrape calls it on its thread.
    """

    def __init__(self, latest: Callable[[], Exposed | None], metrics: Sequence[Metric] = METRICS) -> None:
        self._latest = latest
        self._metrics = metrics

    def describe(self) -> list[Family]:
        """Empty: metrics change with each snapshot, so the registry cannot check for duplicate names."""
        return []

    def collect(self) -> Iterator[Family]:
        snapshot = self._latest()
        if snapshot is not None:
            shown = [(each, shown_of(each, each.groups)) for each in collections_of(snapshot)]
            for metric in self._metrics:
                family = _histogram(metric, snapshot) if isinstance(metric, Histogram) else _family(metric, shown)
                if family.samples:
                    yield family


def _family(metric: Metric, shown: Sequence[tuple[Collection, GroupColumns]]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.sentence, labels=metric.labels)
    for collection, columns in shown:
        for values, number in _samples(metric, collection, columns):
            family.add_metric(values, number)
    return family


def _histogram(metric: Histogram, snapshot: Exposed) -> Family:
    histogram = HistogramMetricFamily(metric.name, metric.sentence, labels=metric.labels)
    for labels, counts, total in metric.samples(snapshot) if isinstance(snapshot, FleetSnapshot) else ():
        bounds = [*map(str, metric.bounds), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
        histogram.add_metric(labels, buckets, total)
    return histogram


def _samples(metric: Metric, collection: Collection, columns: GroupColumns) -> Iterable[Sample]:
    if isinstance(metric, PartitionColumn | WordColumn):
        return _column(metric, collection, columns)
    if isinstance(metric, GroupValue):
        values = ((group, metric.value(group)) for group in collection.groups)
        return (((group.cluster, group.group), value) for group, value in values if value is not None)
    return samples_of(metric, collection, collection.groups)


def _column(metric: PartitionColumn | WordColumn, collection: Collection, shown: GroupColumns) -> Iterator[Sample]:
    column = metric.values(shown)
    values = iter(() if column is None else column.tolist())
    partitions = iter(shown.partitions.names.keys)
    for group in (each for each in collection.groups if each.detail == "partition"):
        for (topic, partition), value in zip(islice(partitions, len(group.partitions)), values, strict=False):
            key = (collection.cluster, group.group, topic, str(partition))
            if isinstance(metric, PartitionColumn):
                if value not in (None, ABSENT) and value == value:
                    yield key, value
            elif value >= 0:
                yield (*key, metric.words[value]), 1.0
