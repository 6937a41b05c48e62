"""The table of all metrics, put together from those of partitions, groups, clusters, workers and the master.

What is unknown has no sample: never 0, never NaN. Nothing is remembered between snapshots, so a series that is no
longer true is gone with the next one. docs/metrics.md is written from this table.
"""

from __future__ import annotations

from kctl.exporter import of_groups, of_master, of_partitions, of_workers
from kctl.exporter.metric import Metric

METRICS: tuple[Metric, ...] = (
    *of_partitions.METRICS,
    *of_groups.METRICS,
    *of_workers.METRICS,
    *of_master.METRICS,
)
