"""Counts what a committed offset passes on its way to `/metrics`: `python -m tests.offset_path`.

A fleet and all groups of a cluster are collected over a scripted broker and agents' replies with one committed offset,
and both are rendered. A file is passed if one of its functions has the offset in an argument, a local variable or its
result; a value type if it has the offset in its own field, not only in another value. `kctl.advice` is not on the
way.
"""

import asyncio
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np

from benchmarks import _collected
from kctl.config.sections import ExporterSection, KafkaSection, StatusSection
from kctl.exporter import Exposition
from kctl.groups.broker_cache import BrokerCache
from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.groups.snapshot import Clusters
from kctl.kafka.client.access import plain
from tests.servers.scripted_broker import Answers, ScriptedBroker
from tests.unit.kctl_kafka.scripts import described, fetched, group, listed_offsets, member

NUMBER = 987_654_321_012
_TEXT, _BYTES = str(NUMBER), struct.pack(">q", NUMBER)
_TOPIC = _collected.TOPIC_NAMES[0]
_HERE = Path(__file__).parents[1]
_ROOTS = f"{_HERE}/kctl/", f"{_HERE}/agent/kctl_agent/"
_BESIDE = f"{_HERE}/kctl/advice/", f"{_HERE}/kctl/master/advising.py"
_DEPTH = 3


@dataclass(slots=True)
class Walk:
    files: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)


def walked() -> Walk:
    walk = Walk()
    key = _TOPIC, 0
    script = {
        "ListGroups": Answers({"groups": [{"group_id": "g", "protocol_type": "consumer", "group_state": "Stable"}]}),
        "DescribeGroups": described(group("g", members=[member("one", **{_TOPIC: [0]})])),
        "OffsetFetch": fetched({"g": {key: NUMBER}}),
        "ListOffsets": listed_offsets({key: NUMBER + 5}),
    }
    with ScriptedBroker(script, topics=dict.fromkeys(_collected.TOPIC_NAMES, 1)) as broker, watched(walk):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_fleet(broker.address, Path(folder)))
        asyncio.run(_groups(broker.address))
    return walk


async def _fleet(servers: str, folder: Path) -> None:
    caches: list[BrokerCache] = []

    def cache(config: Any) -> BrokerCache:
        kafka = KafkaSection(bootstrap_servers=servers, group="g", topics=(_TOPIC,))
        caches.append(BrokerCache.of(kafka, plain(servers), 30.0))
        return caches[0]

    fleet = cast(Any, _collected._Fleet)
    kept, fleet._committed = fleet._committed, lambda *_: NUMBER
    try:
        collector, _ = _collected.collector_over(1, folder, cluster=cache, servers=servers)
        snapshot = await collector.collect()
    finally:
        fleet._committed = kept
        await caches[0].close()
    assert _TEXT in Exposition(lambda: snapshot).render()[0].decode()


async def _groups(servers: str) -> None:
    collector = ClusterCollector(CollectedCluster("main", plain(servers), ExporterSection(), StatusSection()))
    snapshot = await asyncio.to_thread(collector.collect)
    await collector.close()
    assert _TEXT in Exposition(lambda: Clusters((snapshot,))).render()[0].decode(), snapshot.errors


@contextmanager
def watched(walk: Walk) -> Iterator[None]:
    def seen(frame: FrameType, event: str, result: object) -> None:
        path = frame.f_code.co_filename
        if event in ("call", "return") and path.startswith(_ROOTS) and not path.startswith(_BESIDE):
            values = [value for name, value in frame.f_locals.items() if name not in ("self", "cls")]
            if _has(walk, [*values, result]):
                walk.files.add(os.path.relpath(path, _HERE))

    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _has(walk: Walk, value: Any, depth: int = _DEPTH) -> bool:
    if _is_offset(value):
        return True
    kind = type(value)
    if kind.__module__.startswith(("kctl.", "kctl_agent.", "msgspec")) and not callable(value):
        has = any(_holds(getattr(value, name, None), _DEPTH) for name in _names(value))
        if has:
            walk.types.add(f"{kind.__module__}.{kind.__name__}")
        return has
    inner = _inner(value)
    return depth > 0 and any(_has(walk, each, depth - 1) for each in inner)


def _holds(value: Any, depth: int) -> bool:
    return _is_offset(value) or (depth > 0 and any(_holds(each, depth - 1) for each in _inner(value)))


def _is_offset(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == np.int64 and bool((value == NUMBER).any())
    if isinstance(value, bytes):
        return _BYTES in value or _TEXT.encode() in value
    return _TEXT in value if isinstance(value, str) else isinstance(value, int) and value == NUMBER


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())[:50]
    return list(value)[:50] if isinstance(value, list | tuple | set) and not hasattr(value, "_fields") else []


def _names(value: Any) -> list[str]:
    kind = type(value)
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    fields = *getattr(value, "_fields", ()), *getattr(kind, "__struct_fields__", ())
    return [*fields, *slots, *getattr(value, "__dict__", ())]


def main() -> None:
    walk = walked()
    for title, names in (("files", walk.files), ("value types", walk.types)):
        print(f"{len(names)} {title}", *sorted(names), sep="\n  ")


if __name__ == "__main__":
    main()
