"""Committed offsets and offsets of logs out of the bytes of responses, by the block. Pure.

A group may have committed a hundred thousand offsets. kafka-python makes an object of each, which takes ten times as
long as all else; here the partitions of a topic are unpacked at once where all entries have the same length, as they
have without metadata and tagged fields, and one by one where not. (KIP-482 has the encoding.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from kctl.kafka.flexible import behind_tags, count_of, text_of, varint
from kctl.kafka.layout import Partition

__all__ = [
    "FETCH_VERSIONS",
    "LIST_VERSIONS",
    "FetchedGroup",
    "Keys",
    "TopicOffsets",
    "by_topic",
    "fetched",
    "listed",
]

FETCH_VERSIONS = range(8, 10)
"""Of OffsetFetch: with many groups, topics by name."""
LIST_VERSIONS = range(6, 12)
"""Of ListOffsets: in the flexible encoding."""

_COMMITTED = ">iqi"
_COMMITTED_BYTES = 20
"""partition int32, offset int64, leader epoch int32, no metadata, error code int16, no tags"""
_LISTED_BYTES = 27
"""partition int32, error code int16, timestamp int64, offset int64, leader epoch int32, no tags"""
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_COMMITTED_HEAD = Struct(_COMMITTED)
_LISTED_ONE = Struct(">ihqqi")


class TopicOffsets(NamedTuple):
    """Offsets of some partitions of a topic, in the order in which they came."""

    topic: str
    partitions: tuple[int, ...]
    offsets: tuple[int, ...]


class FetchedGroup(NamedTuple):
    """What a group has committed, each topic once; nothing is known of it where there is an `error_code`."""

    error_code: int
    committed: tuple[TopicOffsets, ...]


def by_topic(offsets: Mapping[Partition, int]) -> tuple[TopicOffsets, ...]:
    """The same, sorted."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[partition] = offset
    return tuple(TopicOffsets(topic, tuple(each), tuple(each.values())) for topic, each in topics.items())


class Keys:
    """The same partitions come with each response: their keys are made once, and shared."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], list[Partition]]] = {}

    def of(self, topic: str, partitions: tuple[int, ...]) -> list[Partition]:
        known = self._known.get(topic)
        if known is None or known[0] != partitions:
            known = self._known[topic] = partitions, [(topic, number) for number in partitions]
        return known[1]


def fetched(body: bytes) -> dict[str, FetchedGroup]:
    """The groups of a response to OffsetFetch, of one of `FETCH_VERSIONS`; partitions with an error or without an
    offset are left out.

    Raises:
        one of `UNREADABLE`: it is none.
    """
    found = {}
    count, at = count_of(body, 4)
    for _ in range(count):
        name, at = text_of(body, at)
        topics, at = count_of(body, at)
        committed = []
        for _ in range(topics):
            topic, at = text_of(body, at)
            partitions, at = count_of(body, at)
            known, offsets, at = _fetched_topic(body, at, partitions)
            if known:
                committed.append(TopicOffsets(topic, known, offsets))
            at = behind_tags(body, at)
        [error_code] = _INT16.unpack_from(body, at)
        at = behind_tags(body, at + 2)
        found[name] = FetchedGroup(error_code, tuple(committed))
    return found


def _fetched_topic(body: bytes, at: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Partitions, their offsets, and where the topic ends."""
    end = at + _COMMITTED_BYTES * count
    block = body[at:end]
    if len(block) == end - at and _is_plain(block, count):
        values = _block("iqixxxx", count).unpack(block)
        offsets = values[1::3]
        if min(offsets, default=0) >= 0:
            return values[0::3], offsets, end
    found: dict[int, int] = {}
    for _ in range(count):
        partition, offset, _ = _COMMITTED_HEAD.unpack_from(body, at)
        size, at = varint(body, at + _COMMITTED_HEAD.size)
        at += max(size - 1, 0)
        [error_code] = _INT16.unpack_from(body, at)
        at = behind_tags(body, at + 2)
        if offset >= 0 and not error_code:
            found[partition] = offset
    return tuple(found), tuple(found.values()), at


def _is_plain(block: bytes, count: int) -> bool:
    """Whether no entry has metadata, an error or tags: then all are of one length, and this is where they stand."""
    nothing = bytes(count)
    lengths = block[16::_COMMITTED_BYTES]  # of the metadata: 0 is null, 1 is empty
    return (
        lengths.count(0) + lengths.count(1) == count
        and block[17::_COMMITTED_BYTES] == nothing
        and block[18::_COMMITTED_BYTES] == nothing
        and block[19::_COMMITTED_BYTES] == nothing
    )


def listed(body: bytes, keys: Keys) -> Iterator[tuple[Sequence[Partition], Sequence[int], Sequence[int]]]:
    """Of each topic of a response to ListOffsets, of one of `LIST_VERSIONS`: partitions, offsets (-1: none), error
    codes.

    Raises:
        one of `UNREADABLE`: it is none.
    """
    count, at = count_of(body, 4)
    for _ in range(count):
        topic, at = text_of(body, at)
        partitions, at = count_of(body, at)
        end = at + _LISTED_BYTES * partitions
        block = body[at:end]
        if len(block) == end - at and block[26::_LISTED_BYTES] == bytes(partitions):
            values = _block("ihqqix", partitions).unpack(block)
            at = end
        else:
            entries: list[int] = []
            for _ in range(partitions):
                entries += _LISTED_ONE.unpack_from(body, at)
                at = behind_tags(body, at + _LISTED_ONE.size)
            values = tuple(entries)
        yield keys.of(topic, values[0::5]), values[3::5], values[1::5]
        at = behind_tags(body, at)


@lru_cache(1024)
def _block(entry: str, count: int) -> Struct:
    return Struct(">" + entry * count)
