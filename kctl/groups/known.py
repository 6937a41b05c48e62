"""What is known of a cluster's groups and logs after many polls, each value with its own time. No clock, no I/O.

A part that was not answered keeps its old values, which grow older; when they are too old they are no longer given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from kctl.kafka.cluster_reader import ClusterReading
from kctl.kafka.groups import ListedGroup
from kctl.kafka.layout import Partition
from kctl.reduce import PartitionRow, ResetPolicy

__all__ = ["Known", "KnownGroup"]

_NO_RESET = repeat(ResetPolicy.NONE)
_row_of: Callable[[tuple[Any, ...]], PartitionRow] = partial(tuple.__new__, PartitionRow)
"""Without a step in Python."""


class _Log(NamedTuple):
    """Offsets of one partition, reported at `at`."""

    at: float
    end: int
    start: int | None
    stable_end: int | None


@dataclass(slots=True)
class KnownGroup:
    """One group, and when each part of it was reported; None: never."""

    listed: ListedGroup
    listed_at: float
    members: int | None = None
    members_at: float | None = None
    committed: dict[Partition, int] = field(default_factory=dict)
    committed_at: float | None = None
    share_lag: dict[Partition, int] = field(default_factory=dict)


class Known:
    """Not thread-safe. All times are those of the caller's monotonic clock."""

    def __init__(self, stale_after_seconds: float) -> None:
        self.stale_after_seconds = stale_after_seconds
        self.groups: dict[str, KnownGroup] = {}
        self._logs: dict[Partition, _Log] = {}
        self._topic_ids: dict[str, str] = {}
        self._unknown: set[Partition] = set()
        """Partitions that the brokers do not have."""

    def add(self, reading: ClusterReading, at: float) -> None:
        """What a poll that was begun `at` has brought."""
        self._add_groups(reading, at)
        for topic in self._recreated(reading):
            self._logs = {key: log for key, log in self._logs.items() if key[0] != topic}
        self._topic_ids = self._topic_ids | reading.topic_ids
        self._unknown = (self._unknown | reading.unknown) - reading.end.keys()
        for key in reading.unknown:
            self._logs.pop(key, None)
        for key, end in reading.end.items():
            old = self._logs.get(key)
            start = reading.start.get(key, None if old is None else old.start)
            self._logs[key] = _Log(at, end, start, reading.stable_end.get(key))

    def forget(self, now: float) -> None:
        """Drop what is too old to be given, and logs that no group reads any more."""
        limit = now - self.stale_after_seconds
        self.groups = {name: group for name, group in self.groups.items() if group.listed_at >= limit}
        read = set().union(*(group.committed for group in self.groups.values())) if self.groups else set()
        self._unknown &= read
        if len(self._logs) > len(read) or any(log.at < limit for log in self._logs.values()):
            self._logs = {key: log for key, log in self._logs.items() if key in read and log.at >= limit}

    def members(self, group: KnownGroup, now: float) -> int | None:
        """Members, if that was reported lately."""
        is_stale = group.members_at is None or now - group.members_at > self.stale_after_seconds
        return None if is_stale else group.members

    def rows(self, group: KnownGroup, now: float, *, is_read_committed: bool) -> tuple[PartitionRow, ...]:
        """The partitions that the group has committed, sorted; none when that is too old. Where the log is not known,
        or was not for too long, there is no end, and no lag; a partition that does not exist has no row."""
        committed_at = group.committed_at
        if committed_at is None or now - committed_at > self.stale_after_seconds:
            return ()
        return self._plain_rows(group, committed_at, now, is_read_committed) or tuple(
            self._rows(group, committed_at, now, is_read_committed)
        )

    def _plain_rows(
        self, group: KnownGroup, committed_at: float, now: float, is_read_committed: bool
    ) -> tuple[PartitionRow, ...]:
        """The same where every log is known and it is no share group, as nearly always, by the column: there may be a
        hundred thousand rows. Else none."""
        keys = sorted(group.committed)
        logs = list(map(self._logs.get, keys))
        if None in logs or group.share_lag or not keys:
            return ()
        times, ends, starts, stable_ends = zip(*logs, strict=True)
        if is_read_committed:
            ends = stable_ends
        ages = [now - (at if at < committed_at else committed_at) for at in times]
        topics, numbers = zip(*keys, strict=True)
        committed = map(group.committed.__getitem__, keys)
        none = repeat(None)
        columns = (topics, numbers, starts, committed, none, ends, none, none, none, ages, _NO_RESET, none)
        return tuple(map(_row_of, zip(*columns, strict=False)))

    def _rows(
        self, group: KnownGroup, committed_at: float, now: float, is_read_committed: bool
    ) -> Iterable[PartitionRow]:
        share_lag, logs = group.share_lag, self._logs
        for key, offset in sorted(group.committed.items()):
            log = logs.get(key)
            if log is None:
                if key not in self._unknown:
                    age = now - committed_at
                    yield PartitionRow(*key, None, offset, None, None, None, None, None, age, ResetPolicy.NONE)
                continue
            end = log.stable_end if is_read_committed else log.end
            age = now - min(log.at, committed_at)
            yield PartitionRow(
                *key, log.start, offset, None, end, None, None, None, age, ResetPolicy.NONE, share_lag.get(key)
            )

    def _add_groups(self, reading: ClusterReading, at: float) -> None:
        if reading.is_listed_in_full:
            self.groups = {
                name: group for name, group in self.groups.items() if name in reading.groups or name in reading.unclear
            }
        for name, listed in reading.groups.items():
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = KnownGroup(listed, at)
            group.listed, group.listed_at = listed, at
            if name in reading.members:
                group.members, group.members_at = reading.members[name], at
            if name in reading.committed:
                group.committed, group.committed_at = reading.committed[name], at
                group.share_lag = reading.share_lag.get(name, {})

    def _recreated(self, reading: ClusterReading) -> list[str]:
        old = self._topic_ids
        return [topic for topic, topic_id in reading.topic_ids.items() if old.get(topic, topic_id) != topic_id]
