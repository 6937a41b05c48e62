"""docs/metrics.md, made of the table of metrics: `python -m tests.metrics_page > docs/metrics.md`."""

from __future__ import annotations

import sys

from kctl.exporter.metric import CLUSTER, GROUP, PARTITION, Metric
from kctl.exporter.metrics import METRICS
from tests.configuration_page import entry

_INTRODUCTION = """\
# Metrics

<!-- Written by `python -m tests.metrics_page > docs/metrics.md` from kctl/exporter/metrics.py. Change it there. -->

`/metrics` renders the last collection of a master, or of `kctl exporter` ([exporter.md](exporter.md)): a scrape asks
neither brokers nor workers and costs them nothing. The same collection feeds `/api/v1/…` and the page at `/`, so the
same question gives the same value:
`kctl_consumer_lag{cluster="main",group="billing",topic="orders",partition="3"} 42`.

- A value that is not known has no sample; it is never 0. A series that is no longer true is gone with the next
  collection.
- While brokers are away, their last offsets stay; `kctl_collect_last_success_timestamp_seconds` and
  `kctl_group_stats_age_seconds` show how old they are.
- Offsets are positions: lag = end - committed, never below 0, as in `kafka-consumer-groups`.
- `cluster` and `group` are `kafka.cluster` and `kafka.group` of the configuration; of groups that are collected as all
  of their cluster, its name and theirs. Those have the metrics of partitions and groups, as far as brokers know them.
- A name that ends in `_total` is a counter, `kctl_rpc_duration_seconds` a histogram, any other a gauge. "1 for" and
  "whether" are 0 or 1; timestamps are Unix time. Labels of a metric beside those of its section stand in braces.
- OpenMetrics 1.0 is for clients that ask for it by `Accept`, else the text format 0.0.4; gzipped if `Accept-Encoding`
  allows it.
- To have metrics of your own on this page: `kctl.exporter.Exposition(latest, beside=registry)` appends a registry of
  `prometheus_client`.
"""
_SECTIONS = {
    PARTITION: "Partitions",
    (*GROUP, "topic"): "Topics",
    (*GROUP, "worker"): "Workers and sinkers",
    GROUP: "Groups and fleets",
    CLUSTER: "Clusters, with all their groups",
}
"""Headings by the labels that their metrics have at least; a metric stands under the first that fits."""


def reference() -> str:
    """Returns the whole page, ending with a newline."""
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
