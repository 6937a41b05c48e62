"""Finds where a reader resumes after its topics were copied to another cluster, for example by MirrorMaker.

The search looks for the copy of the last message that was read. A copy has the timestamp, key and value of the
original, but another offset. Several equal messages are matched with their copies in offset order. The search fails
if there are more or fewer copies than originals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kctl.errors import OperationRefused
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic
from kctl.kafka.consume import Read, Record
from kctl.kafka.offsets import EARLIEST, LATEST, log_offsets

_SEARCHED = 100_000
_OTHERWISE = "use `kctl kafka reset-offsets`, then no --from"


class Cluster(NamedTuple):
    connection: ClusterConnection
    topics: Mapping[str, Topic]
    read: Read


@dataclass(frozen=True, slots=True)
class _Log:
    cluster: Cluster
    key: Partition
    start: int
    end: int

    @classmethod
    def of(cls, cluster: Cluster, key: Partition) -> _Log:
        return cls(cluster, key, *(_offset(cluster, key, at) or 0 for at in (EARLIEST, LATEST)))

    def read(self, begin: int, end: int) -> Iterator[Record]:
        topic, partition = self.key
        return self.cluster.read(topic, {partition: begin}, {partition: end})

    def last_before(self, end: int) -> Record | None:
        back = 1
        while self.start < end:
            begin = max(end - back, self.start)
            last = deque(self.read(begin, end), maxlen=1)  # not a list of perhaps a million messages
            if last or begin == self.start:
                return last[0] if last else None
            back *= 100  # transactions and compaction leave gaps
        return None

    def equal(self, record: Record, has_enough: Callable[[list[int]], bool]) -> list[int]:
        if record.timestamp is None:
            raise OperationRefused("the last stored message has no timestamp by which to find its copy")
        begin = _offset(self.cluster, self.key, record.timestamp)
        found: list[int] = []
        for number, each in enumerate(() if begin is None else self.read(begin, self.end)):
            if has_enough(found) and (each.timestamp or 0) > record.timestamp:
                break
            if number == _SEARCHED:
                raise OperationRefused(f"it is not among the first {number:,} messages of its time: {_OTHERWISE}")
            if (each.timestamp, each.key, each.value) == (record.timestamp, record.key, record.value):
                found.append(each.offset)
        return found


def translated(old: Cluster, new: Cluster, key: Partition, offset: int) -> int:
    """Finds the copy in `new` of the last message below `offset`, and returns the offset after this copy. If the old
    cluster has deleted all messages below `offset`, returns the offset of the copy of the first remaining message. If
    no message was ever below `offset`, returns the start of the new log, if it has a copy of the first message. If both
    logs are empty, returns the start of the new log. Raises OperationRefused, KctlError."""
    source, copy = _Log.of(old, key), _Log.of(new, key)
    last = source.last_before(min(offset, source.end))
    if last is not None:
        return _copied(source, copy, last) + 1
    following = next(source.read(source.start, source.end), None)
    if following is not None:
        first = _copied(source, copy, following)
        return copy.start if source.start == 0 else first
    if source.start == 0 or copy.start == copy.end:
        return copy.start
    raise OperationRefused("the old cluster no longer has the last stored message")


def _copied(source: _Log, copy: _Log, record: Record) -> int:
    originals = source.equal(record, lambda found: record.offset in found)
    place = originals.index(record.offset)
    copies = copy.equal(record, lambda found: len(found) > place)
    if len(copies) <= place:
        raise OperationRefused(
            f"the new cluster does not have the message at offset {record.offset} of the old cluster"
        )
    if len(copies) != len(originals):
        raise OperationRefused(
            f"the old cluster has {len(originals)} messages like that at offset {record.offset}, the new one "
            f"{len(copies)}: {_OTHERWISE}"
        )
    return copies[place]


def _offset(cluster: Cluster, key: Partition, at: int) -> int | None:
    cluster.connection.deadline.renew()
    found = log_offsets(cluster.connection, cluster.topics, [key], at)[key]
    if found.error is not None:
        raise OperationRefused(found.error)
    return found.offset
