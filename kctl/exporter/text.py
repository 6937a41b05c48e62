"""Samples as the text that Prometheus reads: the classic format 0.0.4, or OpenMetrics 1.0.

Partitions come by the ten thousand, so their lines are not built one by one: the labels of each partition are kept as
text from scrape to scrape, and a metric's lines are name, labels, value, name, ... joined once (benchmarks/scrape.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, islice
from operator import attrgetter

from kctl.exporter.exposed import (
    Collection,
    Exposed,
    FlatRows,
    collections_of,
    flat_rows,
    groups_of,
    samples_of,
    with_partitions,
)
from kctl.exporter.metric import Column, Histogram, Metric, WordColumn
from kctl.groups.snapshot import GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import PartitionRow

__all__ = ["OPENMETRICS", "TEXT", "TextRenderer"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Names:
    """Which partitions a collection has; two of the same ones have the same labels."""

    cluster: str
    groups: list[tuple[str, int]]
    """Each with how many partitions it has."""
    topics: list[str]
    partitions: list[int]

    @classmethod
    def of(cls, cluster: str, groups: Sequence[GroupSnapshot], rows: Sequence[PartitionRow]) -> _Names:
        topics, partitions = list(map(attrgetter("topic"), rows)), list(map(attrgetter("partition"), rows))
        return cls(cluster, [(each.group, len(each.partitions)) for each in groups], topics, partitions)


@dataclass(slots=True)
class _Kept:
    """What ended a metric's lines in the last snapshot; and the lines, if it was the same in the snapshot before."""

    endings: Sequence[object]
    lines: list[str] | None = None


class TextRenderer:
    """Not thread-safe: one thread renders at a time."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._parts: dict[tuple[type, str], _Part] = {}

    def render(self, snapshot: Exposed, *, is_openmetrics: bool) -> bytes:
        """The whole page in UTF-8, without the `# EOF` of OpenMetrics."""
        collections = collections_of(snapshot)
        old = self._parts
        self._parts = {
            (type(each), each.cluster): old.get((type(each), each.cluster)) or _Part() for each in collections
        }
        for part, each in zip(self._parts.values(), collections, strict=True):
            part.use(each)
        parts: list[bytes] = []
        for metric in self._metrics:
            lines = [line for part in self._parts.values() for line in part.lines(metric)]
            if lines:
                parts.append("".join((_header(metric, is_openmetrics), *lines)).encode())
        return b"".join(parts)


class _Part:
    """The lines of one collection, the fleet's or a cluster's. While that is the same they are made once."""

    def __init__(self) -> None:
        self._collection: Collection | None = None
        self._groups: Sequence[GroupSnapshot] = ()
        self._rows = FlatRows((), ())
        self._names = _Names("", [], [], [])
        self._labels: dict[tuple[tuple[str, ...], str], list[str]] = {}
        self._kept: dict[str, _Kept] = {}
        self._made: dict[str, list[str]] = {}

    def use(self, collection: Collection) -> None:
        if collection is self._collection:
            return
        self._collection, self._made = collection, {}
        self._groups = groups_of(collection)
        shown = with_partitions(self._groups)
        self._rows = flat_rows(shown)
        names = _Names.of(collection.cluster, shown, self._rows.partitions)
        if names != self._names:
            self._names = names
            self._labels.clear()
            self._kept.clear()

    def lines(self, metric: Metric) -> list[str]:
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = self._lines(metric)
        return made

    def _lines(self, metric: Metric) -> list[str]:
        match metric:
            case Column():
                return self._columns(metric.name, metric.labels, "} ", metric.values(self._rows))
            case WordColumn():
                *labels, of_word = metric.labels
                words = metric.values(self._rows)
                endings = {word: None if word is None else f'{of_word}="{_escaped(word)}"}} 1' for word in set(words)}
                return self._columns(metric.name, labels, ",", [endings[word] for word in words])
            case Histogram():
                if not isinstance(self._collection, FleetSnapshot):
                    return []
                return [line for sample in metric.samples(self._collection) for line in _histogram(metric, *sample)]
        line = f"{metric.name}{{{_closing(metric.labels)}}} %s\n"
        samples = samples_of(metric, self._collection, self._groups)
        return [line % (*map(_escaped, labels), value) for labels, value in samples]

    def _columns(self, name: str, labels: Sequence[str], after: str, endings: Sequence[object]) -> list[str]:
        """The lines of one metric, from what ends the line of each partition; None: it has no line. Those that rarely
        change, such as log starts, are joined once."""
        kept = self._kept.get(name)
        if kept is None or kept.endings != endings:
            self._kept[name] = _Kept(endings)
            return self._joined(name, labels, after, endings)
        if kept.lines is None:
            kept.lines = self._joined(name, labels, after, endings)
        return kept.lines

    def _joined(self, name: str, labels: Sequence[str], after: str, endings: Sequence[object]) -> list[str]:
        texts: Sequence[str] = self._texts(tuple(labels), after)
        if None in endings:
            is_known = [ending is not None for ending in endings]
            texts, endings = list(compress(texts, is_known)), list(compress(endings, is_known))
        if not endings:
            return []
        pieces = [f"\n{name}{{"] * (3 * len(endings))
        pieces[0] = f"{name}{{"
        pieces[1::3] = texts
        # What str makes of a number, in a third of the time.
        pieces[2::3] = [*map(repr, endings)] if isinstance(endings[0], int | float) else map(str, endings)
        return ["".join(pieces), "\n"]

    def _texts(self, labels: tuple[str, ...], after: str) -> list[str]:
        kept = self._labels.get((labels, after))
        if kept is None:
            kept = self._labels[labels, after] = list(_label_texts(self._names, labels, after))
        return kept


def _label_texts(names: _Names, labels: Sequence[str], after: str) -> Iterator[str]:
    """`labels` are what cluster, group, topic and partition are called."""
    rows = zip(names.topics, names.partitions, strict=True)
    topics = {topic: _escaped(topic) for topic in set(names.topics)}
    of_cluster, of_group, of_topic, of_partition = labels
    for group, count in names.groups:
        before = f'{of_cluster}="{_escaped(names.cluster)}",{of_group}="{_escaped(group)}",{of_topic}="'
        for topic, partition in islice(rows, count):
            yield f'{before}{topics[topic]}",{of_partition}="{partition}"{after}'


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
