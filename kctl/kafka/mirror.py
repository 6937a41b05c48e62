"""Finds in a cluster that topics were copied to, by MirrorMaker for instance, the offset at which a reader goes on.

The copy of a message has its timestamp, key and value, and another offset. So the last message that was read is looked
for: among those of its timestamp or later, of several that are equal the one of the same rank. What was not copied yet
is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kctl.errors import OperationRefused
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic
from kctl.kafka.consume import Record, records
from kctl.kafka.offsets import EARLIEST, LATEST, LogOffset, log_offsets

_SEARCHED = 100_000
"""Messages that are read in search of one."""


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition of one of the two clusters. Offsets are asked anew each time; `start` and `end` bound the log."""

    connection: ClusterConnection
    topics: Mapping[str, Topic]
    key: Partition
    start: int
    end: int
    timeout_seconds: float

    def read(self, begin: int, end: int) -> Iterator[Record]:
        topic, partition = self.key
        return records(
            self.connection.access,
            topic,
            {partition: begin},
            {partition: end},
            is_read_committed=True,
            timeout_seconds=self.timeout_seconds,
        )

    def last_before(self, end: int) -> Record | None:
        """The last message below `end`. Offsets may hold none, as after a transaction or a compaction."""
        back = 1
        while self.start < end:
            begin = max(end - back, self.start)
            *_, last = [None, *self.read(begin, end)]
            if last is not None or begin == self.start:
                return last
            back *= 100
        return None

    def since(self, timestamp: int, end: int) -> Iterator[Record]:
        """The messages below `end` from the first one of this time or later on."""
        self.connection.deadline.renew()
        found = log_offsets(self.connection, self.topics, [self.key], timestamp)[self.key]
        if found.error is not None:
            raise OperationRefused(found.error)
        return iter(()) if found.offset is None else islice(self.read(found.offset, end), _SEARCHED)


def translated(
    old: ClusterConnection,
    new: ClusterConnection,
    topics: tuple[Mapping[str, Topic], Mapping[str, Topic]],
    key: Partition,
    offset: int,
    timeout_seconds: float,
) -> int:
    """Returns the offset in the new cluster that follows the copy of the last message below `offset` in the old one.

    `topics` are of the old and of the new cluster. Blocks. Raises OperationRefused: the copy is not found; KctlError:
    the brokers do not answer.
    """
    source, copy = (
        _Log(connection, of_cluster, key, *_bounds(connection, of_cluster, key), timeout_seconds)
        for connection, of_cluster in zip((old, new), topics, strict=True)
    )
    last = source.last_before(min(offset, source.end))
    if last is None:
        if source.start == 0:
            return copy.start  # nothing has been read
        raise OperationRefused("the old cluster no longer has the last message that was stored")
    rank = sum(_is_equal(each, last) for each in source.since(_time(last), last.offset + 1))
    for each in copy.since(_time(last), copy.end):
        rank -= _is_equal(each, last)
        if rank == 0:
            return each.offset + 1
    raise OperationRefused(
        f"the new cluster does not have the last message that was stored, offset {last.offset} of the old"
    )


def _bounds(connection: ClusterConnection, topics: Mapping[str, Topic], key: Partition) -> tuple[int, int]:
    connection.deadline.renew()
    bounds = [log_offsets(connection, topics, [key], at)[key] for at in (EARLIEST, LATEST)]
    return _known(bounds[0]), _known(bounds[1])


def _known(found: LogOffset) -> int:
    if found.offset is None:
        raise OperationRefused(found.error or "its offsets are not known")
    return found.offset


def _time(record: Record) -> int:
    if record.timestamp is None:
        raise OperationRefused("the last message that was stored has no timestamp to look for")
    return record.timestamp


def _is_equal(one: Record, other: Record) -> bool:
    return (one.timestamp, one.key, one.value) == (other.timestamp, other.key, other.value)
