"""Decodes committed offsets from the bytes of OffsetFetch responses. Pure. Encoding: KIP-482.

kafka-python makes an object for each offset. For 100,000 offsets this takes ten times as long as the rest of a poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import compress, pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.kafka.client.layout import Partition
from kctl.kafka.protocol.raw import behind_tags, count_of, text_of, varint

FETCH_VERSIONS = range(8, 10)  # versions with many groups and topic names

TopicPartitions = tuple[str, tuple[int, ...]]

_THROTTLE_BYTES = 4
_OFFSET_BYTES = 8
_BEFORE_OFFSET = 4
_PLAIN_BYTES = 20
"""A plain entry: partition int32, offset int64, leader epoch int32, no metadata, error code int16, no tags."""
_INT16 = Struct(">h")
_HEAD = Struct(">iqi")


class GroupOffsets(NamedTuple):
    topics: tuple[TopicPartitions, ...]
    """In response order; the same object in the next poll if unchanged."""
    offsets: NDArray[np.int64]  # the offsets of all partitions, one topic after the other

    def without(self, topics: Set[str]) -> GroupOffsets:
        is_left = [topic not in topics for topic, _ in self.topics]
        if all(is_left):
            return self
        of_each = np.repeat(is_left, [len(numbers) for _, numbers in self.topics])
        return GroupOffsets(tuple(compress(self.topics, is_left)), self.offsets[of_each])

    def with_more(self, other: GroupOffsets) -> GroupOffsets:
        if not other.topics:
            return self
        return GroupOffsets((*self.topics, *other.topics), np.concatenate((self.offsets, other.offsets)))

    def items(self) -> Iterator[tuple[Partition, int]]:
        keys = ((topic, number) for topic, numbers in self.topics for number in numbers)
        return zip(keys, self.offsets.tolist(), strict=True)


class FetchedGroup(NamedTuple):
    error_code: int
    committed: GroupOffsets


def by_topic(offsets: Mapping[Partition, int]) -> GroupOffsets:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, []).append(partition)
    values = [offset for _, offset in sorted(offsets.items())]
    return GroupOffsets(tuple((topic, tuple(each)) for topic, each in topics.items()), np.array(values, np.int64))


class CommittedResponses:
    def __init__(self) -> None:
        self._layout: _Layout | None = None
        """A later response with the same groups and partitions differs only in offsets, and is not parsed again."""

    def read(self, body: bytes) -> dict[str, FetchedGroup]:
        """Decodes a response. Leaves out partitions with an error or without an offset. Raises one of `UNREADABLE`."""
        if self._layout is None or not self._layout.fits(body):
            self._layout = None
            self._layout = _Layout(body)
        return self._layout.groups(body)


class _Layout:
    def __init__(self, body: bytes) -> None:
        self._groups: list[tuple[str, int, tuple[TopicPartitions, ...]]] = []
        places: list[NDArray[np.intp]] = []
        self._ends = [0]  # where each group ends among all offsets
        count, at = count_of(body, _THROTTLE_BYTES)
        for _ in range(count):
            name, at = text_of(body, at)
            topics, at = _topics(body, at)
            [error_code] = _INT16.unpack_from(body, at)
            at = behind_tags(body, at + _INT16.size)
            self._groups.append((name, error_code, tuple((topic, numbers) for topic, numbers, _ in topics)))
            places += (each for _, _, each in topics)
            self._ends.append(self._ends[-1] + sum(len(numbers) for _, numbers, _ in topics))
        self._places = np.concatenate([np.empty(0, np.intp), *places])
        self._body = np.frombuffer(body, np.uint8)
        self._is_fixed = np.full(len(body), 0xFF, np.uint8)
        self._is_fixed[:_THROTTLE_BYTES] = 0
        self._is_fixed[self._places[:, None] + np.arange(_OFFSET_BYTES)] = 0

    def fits(self, body: bytes) -> bool:
        if len(body) != len(self._body):
            return False
        differs = np.bitwise_xor(np.frombuffer(body, np.uint8), self._body)
        differs &= self._is_fixed
        return not differs.any() and bool((self._offsets(body) >= 0).all())

    def groups(self, body: bytes) -> dict[str, FetchedGroup]:
        offsets = self._offsets(body)
        return {
            name: FetchedGroup(error_code, GroupOffsets(topics, offsets[begin:end]))
            for (name, error_code, topics), (begin, end) in zip(self._groups, pairwise(self._ends), strict=True)
        }

    def _offsets(self, body: bytes) -> NDArray[np.int64]:
        at_each = np.ndarray(max(len(body) - _OFFSET_BYTES + 1, 0), ">i8", body, strides=(1,))
        offsets: NDArray[np.int64] = at_each[self._places].astype(np.int64)
        return offsets


def _topics(body: bytes, at: int) -> tuple[list[tuple[str, tuple[int, ...], NDArray[np.intp]]], int]:
    count, at = count_of(body, at)
    topics = []
    for _ in range(count):
        topic, at = text_of(body, at)
        partitions, at = count_of(body, at)
        numbers, places, at = _plain(body, at, partitions) or _one_by_one(body, at, partitions)
        if numbers:
            topics.append((topic, numbers, places))
        at = behind_tags(body, at)
    return topics, at


def _plain(body: bytes, at: int, count: int) -> tuple[tuple[int, ...], NDArray[np.intp], int] | None:
    end = at + _PLAIN_BYTES * count
    block = body[at:end]
    if len(block) < end - at:
        return None
    lengths, nothing = block[16::_PLAIN_BYTES], bytes(count)  # of the metadata: 0 is null, 1 is empty
    if lengths.count(0) + lengths.count(1) != count or any(block[i::_PLAIN_BYTES] != nothing for i in (17, 18, 19)):
        return None
    values = Struct(">" + "iqixxxx" * count).unpack(block)
    if min(values[1::3], default=0) < 0:
        return None
    return values[0::3], np.arange(at + _BEFORE_OFFSET, end, _PLAIN_BYTES), end


def _one_by_one(body: bytes, at: int, count: int) -> tuple[tuple[int, ...], NDArray[np.intp], int]:
    found: dict[int, int] = {}
    for _ in range(count):
        began = at
        partition, offset, _ = _HEAD.unpack_from(body, at)
        size, at = varint(body, at + _HEAD.size)
        at += max(size - 1, 0)
        [error_code] = _INT16.unpack_from(body, at)
        at = behind_tags(body, at + _INT16.size)
        if offset >= 0 and not error_code:
            found[partition] = began + _BEFORE_OFFSET
    return tuple(found), np.array([*found.values()], np.intp), at
