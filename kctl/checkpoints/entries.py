"""Parses the files of a checkpoint, as Spark 3.4 to 4.2 write them.

`metadata` is a line of JSON with the query's id. `offsets/N` has the line `v1`, a line about batch N, and a line for
each source. A Kafka source's line has each partition's offset after the batch: `{"orders":{"0":1200}}`.
`commits/N` marks batch N as done. It has the line `v1`, or `v2` (Spark 4.0), and usually a line of JSON. `sources/I/0`
has the offsets where a Kafka source began.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

Offsets: TypeAlias = dict[tuple[str, int], int]
_OFFSETS_VERSIONS = ("v1",)
_COMMIT_VERSIONS = ("v1", "v2")
_NO_OFFSET = "-"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"[0-9]{1,10}")
_YEAR_10000_MS = 253_402_300_800_000  # the first time that Python's calendar does not have


class BadEntry(ValueError):
    """Spark cannot read a file of a checkpoint, or kctl does not know the file's version."""


@dataclass(frozen=True, slots=True)
class Planned:
    """An entry of `offsets/`: where a batch ends. In `sources`, None means not Kafka, or no offset yet."""

    sources: tuple[Offsets | None, ...]
    planned_at: float | None = None  # seconds since 1970
    watermark_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings that Spark takes from the checkpoint at a restart."""


def query_id(text: str) -> str:
    """Parses `metadata`. Raises BadEntry."""
    found = _json(text).get("id")
    try:
        return str(UUID(found))
    except (ValueError, TypeError, AttributeError):
        raise BadEntry("has no query id") from None


def planned(text: str) -> Planned:
    """Parses a file of `offsets/`. Raises BadEntry."""
    lines = _lines(text, _OFFSETS_VERSIONS)
    if len(lines) < 3:
        raise BadEntry("is truncated: it names no source")
    metadata = _json(lines[1] or "{}")
    at, conf = _time(metadata.get("batchTimestampMs")), metadata.get("conf")
    return Planned(
        tuple(map(_source, lines[2:])),
        at / 1000 if at else None,
        _time(metadata.get("batchWatermarkMs")),
        {key: str(value) for key, value in conf.items()} if isinstance(conf, dict) else {},
    )


def commit(text: str) -> Mapping[str, Any]:
    """Parses a file of `commits/`. Returns an empty mapping if it has only a version line. Raises BadEntry."""
    return _json([*_lines(text, _COMMIT_VERSIONS), "{}"][1])


def initial(text: str) -> Offsets | None:
    """Parses `sources/I/0`. Returns None if the source is not Kafka. Raises BadEntry."""
    return _source(_lines(text.lstrip("\0"), _OFFSETS_VERSIONS)[-1])


def merged(sources: Iterable[Offsets | None]) -> Offsets:
    """Joins the offsets of all sources. If two sources read the same partition, the lower offset counts."""
    offsets: Offsets = {}
    for each in sources:
        for key, offset in (each or {}).items():
            offsets[key] = min(offset, offsets.get(key, offset))
    return offsets


def unread(offsets: Offsets, counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns the new partitions of each topic: those above the highest partition that the query reads. Lower
    partitions are not new: Spark's option `assign` may omit them. `counts` has each topic's number of partitions."""
    highest: dict[str, int] = {}
    for topic, partition in offsets:
        highest[topic] = max(partition, highest.get(topic, 0))
    return [(topic, new) for topic, last in highest.items() for new in range(last + 1, counts.get(topic, 0))]


def starting_offsets(offsets: Offsets) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics, separators=(",", ":"))


def _lines(text: str, versions: tuple[str, ...]) -> list[str]:
    version, *rest = text.rstrip("\n").split("\n")
    if not version.strip():
        raise BadEntry("is empty")
    if version.strip() not in versions:
        raise BadEntry("has a version that kctl does not know")  # its text may be another file's
    return [version, *rest]


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadEntry("is empty or truncated" if len(text) < 3 else "is truncated, or is not JSON") from None
    return found if isinstance(found, dict) else {}


def _time(value: object) -> int:
    return value if type(value) is int and 0 < value < _YEAR_10000_MS else 0


def _source(line: str) -> Offsets | None:
    if line == _NO_OFFSET:
        return None
    found = _json(line)
    if not found or not all(isinstance(each, dict) and each and _TOPIC.fullmatch(key) for key, each in found.items()):
        return None
    # Requests ask for all groups at once, and one value that is invalid in Kafka would make them fail.
    pairs = [(topic, number, offset) for topic, each in found.items() for number, offset in each.items()]
    if not all(
        _PARTITION.fullmatch(number) and int(number) < 1 << 31 and type(offset) is int and 0 <= offset < 1 << 63
        for _, number, offset in pairs
    ):
        return None
    return {(topic, int(number)): offset for topic, number, offset in pairs}
