"""Prometheus samples of the last snapshot. The modules `of_…` declare metrics, and `exposition` renders `/metrics`."""

from kctl.exporter.exposition import METRICS, Exposition
from kctl.exporter.metric import Metric

__all__ = ["METRICS", "Exposition", "Metric"]
