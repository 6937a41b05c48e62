"""The last fleet snapshot as Prometheus samples: `metrics` is the one table, `exposition` renders it."""

from __future__ import annotations

from kctl.exporter.exposition import Exposition
from kctl.exporter.metrics import METRICS, Metric

__all__ = ["METRICS", "Exposition", "Metric"]
