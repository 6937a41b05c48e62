"""Prometheus samples of the last fleet snapshot: `metrics` is the table, `exposition` renders the page."""

from __future__ import annotations

from kctl.exporter.exposition import Exposition
from kctl.exporter.metric import Metric
from kctl.exporter.metrics import METRICS

__all__ = ["METRICS", "Exposition", "Metric"]
