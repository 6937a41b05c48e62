"""The metrics of docs/metrics.md, from their table."""

from kctl.exporter import METRICS
from kctl.exporter.metric import CLUSTER, GROUP, PARTITION, Metric
from tests.configuration_page import entry

_SECTIONS = {
    PARTITION: "Partitions",
    (*GROUP, "topic"): "Topics",
    (*GROUP, "worker"): "Workers and sinkers",
    GROUP: "Groups and fleets",
    CLUSTER: "Clusters, with all their groups",
}
"""Headings by the first labels of their metrics; a metric belongs to the first heading that matches."""


def reference() -> str:
    return "".join(map(_section, _SECTIONS))


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
