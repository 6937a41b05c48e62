"""Samples as the text that Prometheus reads: the classic format 0.0.4, or OpenMetrics 1.0.

Partitions come by the hundred thousand, so their lines are not built one by one: the labels of each partition are kept
as text from scrape to scrape, and the lines of a block are name, labels, value, name, ... joined once
(benchmarks/scrape.py). Blocks of which no value has changed stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.exporter.blocks import Block
from kctl.exporter.exposed import Collection, Exposed, collections_of, groups_of, rows_shown, samples_of
from kctl.exporter.metric import Column, Histogram, Metric, WordColumn
from kctl.exporter.rows import Labels, Rows
from kctl.groups.snapshot import GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.status.history import ABSENT

__all__ = ["OPENMETRICS", "TEXT", "TextRenderer"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_BLOCK_ROWS = 2_000
"""Lines of a block: where one of these partitions changes, all are made anew."""


@dataclass(slots=True)
class _Kept:
    """The values of a metric in the last snapshot, and their lines."""

    values: NDArray[Any]
    blocks: list[Block]


class _Samples(NamedTuple):
    """The lines of a metric of which samples are given one by one."""

    text: str
    block: Block


class TextRenderer:
    """Not thread-safe: one thread renders at a time."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._parts: dict[tuple[type, str], _Part] = {}

    def render(self, snapshot: Exposed, *, is_openmetrics: bool) -> list[Block]:
        """The whole page in UTF-8, without the `# EOF` of OpenMetrics."""
        collections = collections_of(snapshot)
        old = self._parts
        self._parts = {
            (type(each), each.cluster): old.get((type(each), each.cluster)) or _Part() for each in collections
        }
        for part, each in zip(self._parts.values(), collections, strict=True):
            part.use(each)
        page: list[Block] = []
        for metric in self._metrics:
            blocks = [block for part in self._parts.values() for block in part.blocks(metric)]
            if blocks:
                page += (Block(partial(_header, metric, is_openmetrics)), *blocks)
        return page


class _Part:
    """The lines of one collection, the fleet's or a cluster's. While that is the same they are made once."""

    def __init__(self) -> None:
        self._collection: Collection | None = None
        self._groups: Sequence[GroupSnapshot] = ()
        self._rows: Rows | None = None
        self._labels = Labels("", [], [])
        self._texts = _LabelTexts(self._labels)
        self._kept: dict[str, _Kept] = {}
        self._samples: dict[str, _Samples] = {}
        self._made: dict[str, list[Block]] = {}

    def use(self, collection: Collection) -> None:
        if collection is self._collection:
            return
        self._groups, self._made = (), {}  # first, so that it is the old collection that lets them go
        self._collection = collection
        self._groups = groups_of(collection)
        labels, self._rows = rows_shown(collection, self._groups)
        if labels != self._labels:
            self._labels = labels
            self._texts = _LabelTexts(labels)
            self._kept.clear()

    def blocks(self, metric: Metric) -> list[Block]:
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = self._blocks(metric)
        return made

    def _blocks(self, metric: Metric) -> list[Block]:
        match metric:
            case Column() | WordColumn():
                assert self._rows is not None
                return self._columns(metric, metric.values(self._rows))
            case Histogram():
                if not isinstance(self._collection, FleetSnapshot):
                    return []
                samples = metric.samples(self._collection)
                text = "".join(line for sample in samples for line in _histogram(metric, *sample))
            case _:
                text = self._lines(metric)
        kept = self._samples.get(metric.name)
        if kept is None or kept.text != text:
            kept = self._samples[metric.name] = _Samples(text, Block(text.encode))
        return [kept.block] if text else []

    def _lines(self, metric: Metric) -> str:
        """Of samples that are given one by one. Hardly any label needs to be escaped, which is soon seen of all."""
        line = f"{metric.name}{{{_closing(metric.labels)}}} %s\n"
        samples = samples_of(metric, self._collection, self._groups)
        lines = [line % (*labels, value) for labels, value in samples]
        text = "".join(lines)
        quotes = 2 * len(metric.labels) * len(lines)
        if "\\" not in text and text.count('"') == quotes and text.count("\n") == len(lines):
            return text
        samples = samples_of(metric, self._collection, self._groups)
        return "".join([line % (*map(_escaped, labels), value) for labels, value in samples])

    def _columns(self, metric: Column | WordColumn, values: NDArray[Any]) -> list[Block]:
        """The lines of one metric; what is not known has none."""
        is_known = _is_known(values)
        if not is_known.any():
            return []
        kept, blocks = self._kept.get(metric.name), []
        for number, begin in enumerate(range(0, len(values), _BLOCK_ROWS)):
            part = slice(begin, begin + _BLOCK_ROWS)
            if kept is not None and _is_same(kept.values[part], values[part]):
                blocks.append(kept.blocks[number])
            else:
                blocks.append(Block(partial(self._joined, self._texts, metric, values[part], is_known[part], begin)))
        self._kept[metric.name] = _Kept(values, blocks)
        return blocks

    @staticmethod
    def _joined(
        texts: _LabelTexts,
        metric: Column | WordColumn,
        values: NDArray[Any],
        is_known: NDArray[np.bool_],
        begin: int,
    ) -> bytes:
        befores, partitions = texts.of(metric, begin, begin + len(values))
        if not is_known.all():
            chosen = is_known.tolist()
            befores, partitions = list(compress(befores, chosen)), list(compress(partitions, chosen))
            values = values[is_known]
        pieces = [""] * (3 * len(partitions))
        pieces[0::3], pieces[1::3], pieces[2::3] = befores, partitions, _endings(metric, values)
        pieces[0] = pieces[0][1:]
        pieces.append("\n")
        return "".join(pieces).encode()


class _LabelTexts:
    """The labels of each partition as text, the same for many metrics."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._begins = [0, *accumulate(count for _, count in labels.groups)]
        """Of the groups."""
        self._partitions: dict[tuple[str, ...], list[str]] = {}

    def of(self, metric: Column | WordColumn, begin: int, end: int) -> tuple[list[str], list[str]]:
        """Of the partitions from `begin` to `end`: what a line has before its topic, from the end of the line before
        on; and topic and partition, to where the value or the word is."""
        of_cluster, of_group, of_topic, of_partition, *_ = metric.labels
        key = of_topic, of_partition, "," if isinstance(metric, WordColumn) else "} "
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = self._made(*key)
        befores, first, number = list[str](), begin, bisect_right(self._begins, begin) - 1
        before = f'\n{metric.name}{{{of_cluster}="{_escaped(self._labels.cluster)}",{of_group}="'
        while first < min(end, len(known)):
            group, count = self._labels.groups[number]
            until = min(self._begins[number] + count, end)
            befores += [f'{before}{_escaped(group)}",'] * (until - first)
            first, number = until, number + 1
        return befores, known[begin:end]

    def _made(self, of_topic: str, of_partition: str, after: str) -> list[str]:
        """The same object for the same partition, for many groups may read it."""
        partitions = self._labels.partitions
        topics = {topic: _escaped(topic) for topic, _ in partitions}
        texts = {key: f'{of_topic}="{topics[key[0]]}",{of_partition}="{key[1]}"{after}' for key in set(partitions)}
        return list(map(texts.__getitem__, partitions))


def _is_known(values: NDArray[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ~np.isnan(values) if values.dtype == np.float64 else values != ABSENT
    return values >= 0 if values.dtype == np.int8 else found


def _is_same(old: NDArray[Any], new: NDArray[Any]) -> bool:
    return np.array_equal(old, new, equal_nan=old.dtype == np.float64)


def _endings(metric: Column | WordColumn, values: NDArray[Any]) -> Iterable[str]:
    """Of integers what str makes of them, in a third of the time. To write a float takes long, and many are the
    same."""
    numbers = values.tolist()
    if isinstance(metric, WordColumn):
        endings = [f'{metric.labels[-1]}="{_escaped(word)}"}} 1' for word in metric.words]
        return [endings[number] for number in numbers]
    if values.dtype == np.float64:
        texts = {number: repr(number) for number in set(numbers)}
        return map(texts.__getitem__, numbers)
    return map(repr, numbers)


def _header(metric: Metric, is_openmetrics: bool) -> bytes:
    name, sentence = metric.name, metric.sentence.replace("\\", r"\\").replace("\n", r"\n")
    if is_openmetrics:
        name, sentence = name.removesuffix("_total"), sentence.replace('"', r"\"")
    return f"# HELP {name} {sentence}\n# TYPE {name} {metric.kind}\n".encode()


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
