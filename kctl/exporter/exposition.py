"""Renders the last snapshot for a scrape, through a registry of its own: no process or interpreter metrics slip in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kctl.exporter.metrics import METRICS, Metric
from kctl.master.snapshot import FleetSnapshot

__all__ = ["Exposition"]


class Exposition:
    """`latest` gives the last snapshot, None before the first. A scrape asks nobody else and may run on any thread."""

    def __init__(self, latest: Callable[[], FleetSnapshot | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LatestSnapshot(latest))

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type: OpenMetrics if the scraper's Accept header wants it, else the text format."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type


class _LatestSnapshot(Collector):
    def __init__(self, latest: Callable[[], FleetSnapshot | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Family]:
        snapshot = self._latest()
        if snapshot is not None:
            for metric in METRICS:
                yield _family(metric, snapshot)


def _family(metric: Metric, snapshot: FleetSnapshot) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.sentence, labels=metric.labels)
    for labels, value in metric.samples(snapshot):
        family.add_metric(labels, value)
    return family
