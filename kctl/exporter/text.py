"""The text format of Prometheus: classic 0.0.4, or OpenMetrics 1.0.

A page consists of blocks of lines. To render 100,000 partitions fast, the renderer keeps each block's labels between
scrapes, and inserts all values of a block with one `%` operation (benchmarks/scrape.py).

Each block is compressed separately, and compressed again only after a change. The compressed block ends with a full
flush (`Z_FULL_FLUSH`), so that blocks can be joined.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate, compress, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from kctl.exporter.metric import (
    GroupValue,
    Histogram,
    Metric,
    OfCluster,
    OfGroup,
    PartitionColumn,
    Sample,
    Single,
    WordColumn,
)
from kctl.fields import qualified
from kctl.groups.snapshot import NOTHING_KNOWN, Clusters, ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.columns import ABSENT, Partition

_LEVEL = 1
_RAW = -15  # zlib's window bits for a raw stream without a header
_HEADER = bytes.fromhex("1f8b08000000000004ff")
"""A gzip header without name and time, of an unknown system."""
_LAST = bytes.fromhex("0300")  # an empty deflate block that ends the stream


class _Packed(NamedTuple):
    body: bytes
    crc: int
    size: int


class TextBlock:
    """Lines of a page. Both `text` and `packed` keep their first result."""

    __slots__ = ("_make", "_packed", "_text")

    def __init__(self, make: Callable[[], bytes]) -> None:
        """`make` is called at most twice, and must always return the same text."""
        self._make = make
        self._text: bytes | None = None
        self._packed: _Packed | None = None

    def text(self) -> bytes:
        if self._text is None:
            self._text = self._make()
        return self._text

    def packed(self) -> _Packed:
        if self._packed is None:
            text = self._make() if self._text is None else self._text
            compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
            body = compressor.compress(text) + compressor.flush(isal_zlib.Z_FULL_FLUSH)
            self._packed = _Packed(body, isal_zlib.crc32(text), len(text))
        return self._packed


def plain(blocks: Iterable[TextBlock]) -> bytes:
    return b"".join(block.text() for block in blocks)


def gzipped(blocks: Iterable[TextBlock]) -> bytes:
    # One gzip member for all blocks, because some clients read only the first of several.
    packed = [block.packed() for block in blocks]
    crc = reduce(lambda crc, each: isal_zlib.crc32_combine(crc, each.crc, each.size), packed, 0)
    size = sum(each.size for each in packed) & 0xFFFFFFFF
    return b"".join((_HEADER, *(each.body for each in packed), _LAST, struct.pack("<II", crc, size)))


TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_Labels: TypeAlias = tuple[str, list[tuple[str, int]], list[Partition]]
"""The cluster, its groups with their numbers of partitions, and all partitions in order."""
_BLOCK_ROWS = 2_000
"""Partitions per block. If one of them changes, the block is rendered again."""


@dataclass(slots=True)
class _Kept:
    values: NDArray[Any]
    blocks: list[TextBlock]


class TextRenderer:
    """Renders snapshots, and reuses blocks that have not changed. Not thread-safe."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._parts: dict[tuple[type, str], _Part] = {}

    def render(self, snapshot: Exposed, *, is_openmetrics: bool) -> list[TextBlock]:
        """Returns the blocks of the whole page, without the final `# EOF` of OpenMetrics."""
        collections = collections_of(snapshot)
        old = self._parts
        self._parts = {
            (type(each), each.cluster): old.get((type(each), each.cluster)) or _Part() for each in collections
        }
        for part, each in zip(self._parts.values(), collections, strict=True):
            part.use(each)
        page: list[TextBlock] = []
        for metric in self._metrics:
            blocks = [block for part in self._parts.values() for block in part.blocks(metric)]
            if blocks:
                page += (TextBlock(partial(_header, metric, is_openmetrics)), *blocks)
        return page


class _Part:
    def __init__(self) -> None:
        self._collection: Collection | None = None
        self._groups: Sequence[GroupSnapshot] = ()
        self._shown = NOTHING_KNOWN
        self._labels: _Labels = "", [], []
        self._texts: list[bytes] = []
        """Labels of each block's partitions, one per line, with `%` doubled."""
        self._kept: dict[str, _Kept] = {}
        self._samples: dict[str, TextBlock] = {}
        self._group_names: list[str] = []
        self._group_labels: list[str] = []
        self._made: dict[str, list[TextBlock]] = {}

    def use(self, collection: Collection) -> None:
        if collection is self._collection:
            return
        self._groups, self._made = (), {}  # first, to free the old collection's
        self._collection = collection
        self._groups = collection.groups
        self._shown = shown_of(collection, self._groups)
        shown = [(group.group, len(group.partitions)) for group in self._groups if group.detail == "partition"]
        labels = collection.cluster, shown, self._shown.partitions.names.keys
        names = [group.group for group in self._groups]
        if names != self._group_names:
            self._group_names, cluster = names, _escaped(collection.cluster)
            self._group_labels = [f'{{cluster="{cluster}",group="{_escaped(name)}"}}' for name in names]
        if labels != self._labels:
            self._labels = labels
            self._texts = _label_texts(labels)
            self._kept.clear()

    def blocks(self, metric: Metric) -> list[TextBlock]:
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = self._blocks(metric)
        return made

    def _blocks(self, metric: Metric) -> list[TextBlock]:
        match metric:
            case PartitionColumn() | WordColumn():
                values = metric.values(self._shown)
                return [] if values is None else self._columns(metric, values)
            case Histogram():
                if not isinstance(self._collection, FleetSnapshot):
                    return []
                samples = metric.samples(self._collection)
                text = "".join(line for sample in samples for line in _histogram(metric, *sample))
            case GroupValue():
                text = self._of_groups(metric)
            case _:
                text = self._lines(metric)
        lines, kept = text.encode(), self._samples.get(metric.name)
        if kept is None or kept.text() != lines:
            kept = self._samples[metric.name] = TextBlock(lambda: lines)
        return [kept] if text else []

    def _of_groups(self, metric: GroupValue) -> str:
        name = metric.name
        each = zip(self._group_labels, map(metric.value, self._groups), strict=True)
        return "".join([f"{name}{labels} {value}\n" for labels, value in each if value is not None])

    def _lines(self, metric: Metric) -> str:
        line = f"{metric.name}{{{_closing(metric.labels)}}} %s\n"
        samples = samples_of(metric, self._collection, self._groups)
        lines = [line % (*labels, value) for labels, value in samples]
        text = "".join(lines)
        # Labels rarely need escaping, which one check of the whole text reveals.
        quotes = 2 * len(metric.labels) * len(lines)
        if "\\" not in text and text.count('"') == quotes and text.count("\n") == len(lines):
            return text
        samples = samples_of(metric, self._collection, self._groups)
        return "".join([line % (*map(_escaped, labels), value) for labels, value in samples])

    def _columns(self, metric: PartitionColumn | WordColumn, values: NDArray[Any]) -> list[TextBlock]:
        is_known = _is_known(values)
        if not is_known.any():
            return []
        kept, blocks = self._kept.get(metric.name), list[TextBlock]()
        is_same = [] if kept is None else _is_same(kept.values, values)
        for number, begin in enumerate(range(0, len(values), _BLOCK_ROWS)):
            part = slice(begin, begin + _BLOCK_ROWS)
            if kept is not None and is_same[number]:
                blocks.append(kept.blocks[number])
            else:
                labels = self._texts[number]
                blocks.append(TextBlock(partial(_joined, labels, metric, values[part], is_known[part])))
        self._kept[metric.name] = _Kept(values, blocks)
        return blocks


def _label_texts(labels: _Labels) -> list[bytes]:
    cluster, groups, partitions = labels
    topics = {topic: _escaped(topic) for topic, _ in partitions}
    head = f'cluster="{_escaped(cluster)}",group="'
    befores = (f'{head}{_escaped(group)}",topic="' for group, count in groups for _ in range(count))
    each = zip(befores, partitions, strict=True)
    lines = (f'{before}{topics[topic]}",partition="{number}"' for before, (topic, number) in each)
    blocks = iter(lambda: "\n".join(islice(lines, _BLOCK_ROWS)), "")
    return [block.replace("%", "%%").encode() for block in blocks]


def _joined(
    labels: bytes, metric: PartitionColumn | WordColumn, values: NDArray[Any], is_known: NDArray[np.bool_]
) -> bytes:
    if not is_known.all():
        labels, values = b"\n".join(compress(labels.split(b"\n"), is_known.tolist())), values[is_known]
    if not len(values):
        return b""
    name, value = f"{metric.name}{{".encode(), _placeholder(metric, values)
    lines = b"".join((name, labels.replace(b"\n", value + name), value))
    return lines % tuple(_texts(metric, values))


def _is_known(values: NDArray[Any]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ~np.isnan(values) if values.dtype == np.float64 else values != ABSENT
    return values >= 0 if values.dtype == np.int8 else found


def _is_same(old: NDArray[Any], new: NDArray[Any]) -> list[bool]:
    bits = f"i{old.itemsize}"
    is_changed = old.view(bits) != new.view(bits)
    changed: list[bool] = np.logical_or.reduceat(is_changed, range(0, len(old), _BLOCK_ROWS)).tolist()
    return [not each for each in changed]


def _placeholder(metric: PartitionColumn | WordColumn, values: NDArray[Any]) -> bytes:
    if isinstance(metric, WordColumn):
        return f',{metric.labels[-1]}="%b"}} 1\n'.encode()
    return b"} %b\n" if values.dtype == np.float64 else b"} %d\n"


def _texts(metric: PartitionColumn | WordColumn, values: NDArray[Any]) -> Iterable[Any]:
    if isinstance(metric, WordColumn):
        words = [_escaped(word).encode() for word in metric.words]
        return map(words.__getitem__, values.tolist())
    if values.dtype != np.float64:
        return list[int](values.tolist())
    numbers, places = np.unique(values, return_inverse=True)  # formatting a float is slow, and many are equal
    texts = [repr(number).encode() for number in numbers.tolist()]
    return map(texts.__getitem__, places.tolist())


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


Collection: TypeAlias = FleetSnapshot | ClusterSnapshot
Exposed: TypeAlias = FleetSnapshot | Clusters


def collections_of(snapshot: Exposed) -> tuple[Collection, ...]:
    """Returns the fleet's snapshot, if there is a fleet, and then one snapshot per collected cluster."""
    return snapshot.clusters if isinstance(snapshot, Clusters) else (snapshot, *snapshot.clusters)


def shown_of(collection: Collection, groups: Sequence[GroupSnapshot]) -> GroupColumns:
    """Returns the partitions of the groups whose `detail` is `partition`."""
    partitions, assessments = collection.columns
    is_shown = [group.detail == "partition" for group in groups]
    if all(is_shown):
        return collection.columns
    has_series = partitions.names.spread(np.array(is_shown, np.bool_))
    rows = np.flatnonzero(has_series)
    return GroupColumns(partitions.chosen(partitions.names.only(has_series), rows), assessments.chosen(rows))


def samples_of(metric: Metric, collection: Collection | None, groups: Sequence[GroupSnapshot]) -> Iterable[Sample]:
    """Adds the missing labels (cluster, group) to a metric's samples. Returns () if `collection` lacks the metric."""
    match metric:
        case OfGroup():
            of_groups = ((group, sample) for group in groups for sample in metric.samples(group))
            return (((group.cluster, group.group, *labels), value) for group, (labels, value) in of_groups)
        case Single() if isinstance(collection, FleetSnapshot):
            head = (collection.cluster, collection.group)
            samples = metric.samples(collection)
            if collection.hosts is not None and "worker" in metric.labels:  # each host has a worker-0
                host = collection.hosts.host
                samples = (((qualified(host, labels[0]), *labels[1:]), value) for labels, value in samples)
            return ((head + labels, value) for labels, value in samples)
        case OfCluster() if isinstance(collection, ClusterSnapshot):
            return (((collection.cluster, *labels), value) for labels, value in metric.samples(collection))
        case Single() | OfCluster():
            return ()
    raise TypeError(metric)
