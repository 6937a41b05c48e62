"""Samples as the text that Prometheus reads: the classic format 0.0.4, or OpenMetrics 1.0.

Partitions come by the ten thousand, so their lines are not built one by one: for each metric and topic a %-template
with every label already in it is kept from scrape to scrape, and a scrape fills in the values (benchmarks/scrape.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kctl.exporter.metric import Column, Histogram, Metric, Single, WordColumn
from kctl.master.snapshot import FleetSnapshot

__all__ = ["OPENMETRICS", "TEXT", "TextRenderer"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Topic:
    """The partitions of a topic: `snapshot.partitions[first:last]`."""

    name: str
    first: int
    last: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Template:
    partitions: tuple[int, ...]
    lines: str


class TextRenderer:
    """Not thread-safe: one thread renders at a time."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._templates: dict[tuple[str, str, str, str], _Template] = {}

    def render(self, snapshot: FleetSnapshot, *, is_openmetrics: bool) -> str:
        """The whole page, without the `# EOF` of OpenMetrics."""
        topics = list(_topics(snapshot))
        parts: list[str] = []
        for metric in self._metrics:
            lines = self._lines(metric, snapshot, topics)
            if lines:
                parts += (_header(metric, is_openmetrics), *lines)
        self._forget_topics_but({topic.name for topic in topics})
        return "".join(parts)

    def _lines(self, metric: Metric, snapshot: FleetSnapshot, topics: Sequence[_Topic]) -> list[str]:
        match metric:
            case Column() | WordColumn():
                return self._columns(metric, snapshot, topics)
            case Single():
                line = f"{metric.name}{{{_closing(metric.labels)}}} %s\n"
                return [line % (*map(_escaped, labels), value) for labels, value in metric.samples(snapshot)]
            case Histogram():
                return [line for sample in metric.samples(snapshot) for line in _histogram(metric, *sample)]
        raise TypeError(metric)

    def _columns(self, metric: Column | WordColumn, snapshot: FleetSnapshot, topics: Sequence[_Topic]) -> list[str]:
        values = metric.values(snapshot)
        filled: list[str] = []
        for topic in topics:
            of_topic: tuple[object, ...] = tuple(values[topic.first : topic.last])
            partitions = topic.partitions
            if None in of_topic:
                known = [pair for pair in zip(partitions, of_topic, strict=True) if pair[1] is not None]
                if not known:
                    continue
                partitions, of_topic = tuple(p for p, _ in known), tuple(v for _, v in known)
            filled.append(self._template(metric, snapshot, topic.name, partitions) % of_topic)
        return filled

    def _template(
        self, metric: Column | WordColumn, snapshot: FleetSnapshot, topic: str, partitions: tuple[int, ...]
    ) -> str:
        key = (metric.name, snapshot.cluster, snapshot.group, topic)
        kept = self._templates.get(key)
        if kept is None or kept.partitions != partitions:
            group = snapshot.group
            texts = {"cluster": snapshot.cluster, "group": group, "consumergroup": group, "topic": topic}
            labels = ",".join(f'{name}="{_escaped(texts[name])}"' for name in metric.labels if name in texts)
            start = f"{metric.name}{{{labels},".replace("%", "%%")
            end = "} %s\n" if isinstance(metric, Column) else f',{metric.labels[-1]}="%s"}} 1\n'
            kept = _Template(partitions, "".join(f'{start}partition="{partition}"{end}' for partition in partitions))
            self._templates[key] = kept
        return kept.lines

    def _forget_topics_but(self, topics: set[str]) -> None:
        for key in [key for key in self._templates if key[3] not in topics]:
            del self._templates[key]


def _topics(snapshot: FleetSnapshot) -> Iterator[_Topic]:
    """Rows are sorted by topic and partition."""
    rows, first = snapshot.partitions, 0
    for last in range(1, len(rows) + 1):
        if last == len(rows) or rows[last].topic != rows[first].topic:
            yield _Topic(rows[first].topic, first, last, tuple(row.partition for row in rows[first:last]))
            first = last


def _header(metric: Metric, is_openmetrics: bool) -> str:
    name, sentence = metric.name, metric.sentence.replace("\\", r"\\").replace("\n", r"\n")
    if is_openmetrics:
        name, sentence = name.removesuffix("_total"), sentence.replace('"', r"\"")
    return f"# HELP {name} {sentence}\n# TYPE {name} {metric.kind}\n"


def _histogram(metric: Histogram, labels: Sequence[str], counts: Sequence[int], total: float) -> Iterator[str]:
    text = _closing(metric.labels) % tuple(_escaped(label) for label in labels)
    cumulated = list(accumulate(counts))
    for bound, count in zip([*map(str, metric.bounds), "+Inf"], cumulated, strict=True):
        yield f'{metric.name}_bucket{{{text},le="{bound}"}} {count}\n'
    yield f"{metric.name}_count{{{text}}} {cumulated[-1]}\n"
    yield f"{metric.name}_sum{{{text}}} {total}\n"


def _closing(labels: Sequence[str]) -> str:
    return ",".join(f'{name}="%s"' for name in labels)


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
