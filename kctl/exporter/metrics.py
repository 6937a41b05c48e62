"""The table of all metrics: partitions, groups, clusters, workers and the master.

An unknown value has no sample: never 0, never NaN. Nothing is kept between snapshots, so a series that is no longer
true disappears with the next. docs/metrics.md is generated from this table.
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
