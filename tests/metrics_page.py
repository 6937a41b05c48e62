"""docs/metrics.md from the table of metrics: `python -m tests.metrics_page > docs/metrics.md`."""

from __future__ import annotations

import sys

from kctl.exporter import METRICS
from kctl.exporter.metric import CLUSTER, GROUP, PARTITION, Metric
from tests.configuration_page import entry

_INTRODUCTION = """\
# Metrics

<!-- Written by `python -m tests.metrics_page > docs/metrics.md` from kctl/exporter/of_*.py. Change it there. -->

`/metrics` renders the last collection of a master, or of `kctl exporter` ([exporter.md](exporter.md)): a scrape sends
no request to brokers or workers. `/api/v1/…` and the page at `/` show the same collection, so the values are the same:
`kctl_consumer_lag{cluster="main",group="billing",topic="orders",partition="3"} 42`.

- An unknown value has no sample; it is never 0. A series ends with the first collection in which it is not true.
- While brokers are away, their last offsets stay; `kctl_collect_last_success_timestamp_seconds` and
  `kctl_group_stats_age_seconds` show their age.
- Lag = end - committed, never below 0, as in `kafka-consumer-groups`.
- `cluster` and `group` are `kafka.cluster` and `kafka.group` of the configuration, or the names of a cluster and group
  that the exporter collects. Other groups than a fleet's own have the metrics of partitions and groups that brokers
  know.
- A name that ends in `_total` is a counter, `kctl_rpc_duration_seconds` is a histogram, any other a gauge. Metrics with
  "1 for" or "whether" are 0 or 1; timestamps are Unix time. Braces contain labels in addition to those of the section.
- The format is OpenMetrics 1.0 if `Accept` asks for it, otherwise the text format 0.0.4; gzipped if `Accept-Encoding`
  allows it.
"""
_SECTIONS = {
    PARTITION: "Partitions",
    (*GROUP, "topic"): "Topics",
    (*GROUP, "worker"): "Workers and sinkers",
    GROUP: "Groups and fleets",
    CLUSTER: "Clusters, with all their groups",
}
"""Headings by the first labels of their metrics; a metric belongs to the first heading that matches."""


def reference() -> str:
    return "".join([_INTRODUCTION, *map(_section, _SECTIONS)])


def _section(labels: tuple[str, ...]) -> str:
    rows = "".join(_row(metric, labels) for metric in METRICS if _home(metric) == labels)
    return f"""
## {_SECTIONS[labels]}

Labels: {_listed(labels)}.

{rows}"""


def _home(metric: Metric) -> tuple[str, ...]:
    return next(labels for labels in _SECTIONS if metric.labels[: len(labels)] == labels)


def _row(metric: Metric, labels: tuple[str, ...]) -> str:
    more = ",".join(metric.labels[len(labels) :])
    return entry(f"`{metric.name}{f'{{{more}}}' if more else ''}`: {metric.sentence}") + "\n"


def _listed(labels: tuple[str, ...]) -> str:
    return ", ".join(map("`{}`".format, labels))


if __name__ == "__main__":
    sys.stdout.write(reference())
