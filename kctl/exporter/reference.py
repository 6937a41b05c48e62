"""docs/metrics.md, written from the table of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kctl.exporter.compatible import COMPATIBLE
from kctl.exporter.metric import Metric
from kctl.exporter.metrics import METRICS

__all__ = ["reference"]

_INTRODUCTION = """\
# Metrics

<!-- Written by `python -m kctl.exporter > docs/metrics.md` from kctl/exporter/metrics.py. Change it there. -->

`/metrics` renders the last collection of a master, or of `kctl exporter` ([exporter.md](exporter.md)): a scrape asks
neither brokers nor workers and costs them nothing. The same collection feeds `/api/v1/…` and the page at `/`, so the
same question gives the same value.

- A value that is not known has no sample; it is never 0. A series that is no longer true is gone with the next
  collection.
- While brokers are away, their last offsets stay; `kctl_collect_last_success_timestamp_seconds` and
  `kctl_group_stats_age_seconds` show how old they are.
- Offsets are positions: lag = end - committed, never below 0, as in `kafka-consumer-groups`.
- `cluster` and `group` are `kafka.cluster` and `kafka.group` of the configuration; of groups that are collected as all
  of their cluster, its name and theirs. Those have the metrics of partitions and groups, as far as brokers know them.
- OpenMetrics 1.0 is for clients that ask for it by `Accept`, else the text format 0.0.4; gzipped if `Accept-Encoding`
  allows it.
- To have these metrics on a page of your own, or yours on this one: `kctl.exporter.SnapshotCollector` is a collector
  for a `prometheus_client` registry, and `kctl.exporter.Exposition(latest, beside=registry)` appends a registry.

"""
_HEAD = """\
| metric | type | labels | unit | what it measures | example |
|---|---|---|---|---|---|
"""

_EXAMPLES: Mapping[str, str] = {
    "cluster": "main",
    "group": "billing",
    "consumergroup": "billing",
    "group_id": "billing",
    "topic": "orders",
    "topic_name": "orders",
    "partition": "3",
    "partition_id": "3",
    "protocol": "",
    "protocol_type": "consumer",
    "coordinator_id": "1",
    "id": "1",
    "address": "kafka-1:9092",
    "worker": "worker-0",
    "status": "ok",
    "reason": "signal",
    "outcome": "ok",
    "method": "offset_checker",
    "operation": "pause",
    "code": "unauthorized",
    "kind": "rebalance",
    "level": "ok",
    "part": "offsets",
    "percentile": "p99",
    "version": "0.1.0",
    "type": "classic",
    "coordinator": "1",
}
_STATES = {
    "kctl_group_state": "stable",
    "kminion_kafka_consumer_group_info": "Stable",
    "kctl_worker_state": "running",
    "kctl_storage_messages": "pending",
}
_UNITS = {"0 or 1": "1", "Unix time": "1700000000.5", "seconds": "0.25", "bytes": "524288000"}


def reference() -> str:
    """The whole page, ending with a newline."""
    return (
        _INTRODUCTION
        + _HEAD
        + _rows(METRICS)
        + "".join(_of_others(name, metrics) for name, metrics in COMPATIBLE.items())
    )


def _rows(metrics: Sequence[Metric]) -> str:
    return "".join(f"{_row(metric)}\n" for metric in metrics)


def _of_others(name: str, metrics: Sequence[Metric]) -> str:
    return (
        f'\n## Under names of {name}\n\nOnly with `exporter.compatible_names = ["{name}"]`; '
        f"[exporter.md](exporter.md#dashboards-that-were-made-for-other-exporters) has what differs.\n\n{_HEAD}"
        + _rows(metrics)
    )


def _row(metric: Metric) -> str:
    labels = ", ".join(map("`{}`".format, metric.labels))
    cells = (f"`{metric.name}`", metric.kind, labels, metric.unit, metric.sentence, f"`{_example(metric)}`")
    return f"| {' | '.join(cells)} |"


def _example(metric: Metric) -> str:
    values = {**_EXAMPLES, "state": _STATES.get(metric.name, "")}
    if metric.name.startswith("kctl_sinker"):
        values |= {"worker": "sinker-0", "outcome": "handled"}
    if metric.name == "kctl_operations_total":
        values["outcome"] = "done"
    labels = ",".join(f'{name}="{values[name]}"' for name in metric.labels)
    if metric.kind == "histogram":
        return f'{metric.name}_bucket{{{labels},le="0.005"}} 42'
    return f"{metric.name}{{{labels}}} {_UNITS.get(metric.unit, '42')}"
