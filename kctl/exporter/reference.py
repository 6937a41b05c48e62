"""docs/metrics.md, written from the table of metrics."""

from __future__ import annotations

from kctl.exporter.metrics import METRICS

__all__ = ["reference"]

_INTRODUCTION = """\
# Metrics

<!-- Written by `python -m kctl.exporter > docs/metrics.md` from kctl/exporter/metrics.py. Change it there. -->

`/metrics` renders the master's last collection: a scrape asks neither brokers nor workers and costs them nothing.
The same collection feeds `/api/v1/lag`, so the same question gives the same figure.

- A figure that is not known has no sample; it is never 0. A series that is no longer true is gone with the next
  collection.
- While brokers are away, their last figures stay; `kctl_collect_last_success_timestamp_seconds` says how old they are.
- Offsets are positions: lag = end - committed, never below 0, as in `kafka-consumer-groups`.
- `cluster` and `group` are `kafka.cluster` and `kafka.group` of the configuration.

| metric | type | labels | what it says |
|---|---|---|---|
"""


def reference() -> str:
    """The whole page, ending with a newline."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(map('`{}`'.format, metric.labels))} | {metric.sentence} |"
        for metric in METRICS
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"
