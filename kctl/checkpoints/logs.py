"""Compares a checkpoint with the logs of its topics: the lag, and whether Spark can continue from each offset."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kctl.checkpoints.checkpoint import Checkpoint, Finding
from kctl.checkpoints.entries import unread
from kctl.errors import KctlError
from kctl.fields import shortened
from kctl.kafka.client import light_imports
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic, topics_of
from kctl.kafka.lag import lag_of
from kctl.kafka.offsets import EARLIEST, LATEST, LogOffset, log_offsets

_GONE = "UNKNOWN_TOPIC_OR_PARTITION"
_SKEW_SECONDS = 900.0  # maximum difference between the clocks of producers and driver
LOOKS_RECREATED = "looks recreated"
_MEANINGS: dict[str, tuple[bool | None, str]] = {
    "gone": (False, "the topic or partition is gone: Spark fails"),
    "lost": (False, "messages were deleted unread: Spark fails, unless failOnDataLoss is false"),
    "beyond": (
        False,
        "the log ends before the next offset (the topic was recreated or truncated): Spark fails, unless "
        "failOnDataLoss is false",
    ),
    "looks": (
        True,
        "the last message below the next offset is newer than the batch that read it. If the topic was recreated, and "
        "the message has no time in the future, Spark skips new messages below the next offset without an error",
    ),
    "new": (
        False,
        "the first messages of a new partition were deleted unread: Spark fails, unless failOnDataLoss is false",
    ),
    "unknown": (None, "the brokers did not answer for it: lag and verdict are not known"),
}
"""First word of a verdict -> whether Spark starts, and why."""
_FINE = ("ok", "new partition")


class Row(NamedTuple):
    """A partition of a query. If the log's offsets are unknown, `error` has the reason. `record_at` is the time of the
    last processed record, in seconds since 1970."""

    topic: str
    partition: int
    next_offset: int | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    record_at: float | None
    verdict: str
    error: str | None = None


def read_rows(
    connection: ClusterConnection,
    checkpoint: Checkpoint,
    only: Collection[str] = (),
    *,
    is_read_committed: bool = False,
) -> list[Row]:
    """Returns a row for each partition, including new ones (see `unread`). `only` selects topics. Raises KctlError."""
    offsets = {key: offset for key, offset in checkpoint.offsets.items() if not only or key[0] in only}
    topics = topics_of(connection.open(sorted({topic for topic, _ in offsets})))
    new = unread(offsets, {topic.name: len(topic.partitions) for topic in topics.values()})
    keys = sorted({*offsets, *new})
    starts = log_offsets(connection, topics, keys, EARLIEST)
    ends = log_offsets(connection, topics, keys, LATEST, is_read_committed=is_read_committed)
    times = _record_times(connection, topics, offsets, starts, ends)
    return [
        judged(key, offsets.get(key), starts[key], ends[key], times.get(key), checkpoint.processed_at) for key in keys
    ]


def unasked(checkpoint: Checkpoint, only: Collection[str] = ()) -> list[Row]:
    offsets = sorted(checkpoint.offsets.items())
    return [Row(*key, at, None, None, None, None, "unknown") for key, at in offsets if not only or key[0] in only]


def judged(
    key: Partition,
    offset: int | None,
    start: LogOffset,
    end: LogOffset,
    record_at: float | None,
    processed_at: float | None,
) -> Row:
    """Returns a partition's row with its verdict. `offset` is None if the query does not know the partition yet."""
    error = start.error or end.error
    if error == _GONE:
        return Row(*key, offset, None, None, None, None, "gone")
    if error is not None or start.offset is None or end.offset is None:
        return Row(*key, offset, None, None, None, None, "unknown", error or "the offset is not known")
    lag = lag_of(start.offset if offset is None else offset, end.offset)
    known = Row(*key, offset, start.offset, end.offset, lag, record_at, "ok")
    if offset is None:
        return known._replace(verdict=f"new partition, lost {start.offset}" if start.offset else "new partition")
    if offset < start.offset:
        return known._replace(verdict=f"lost {start.offset - offset}")
    if offset > end.offset:
        return known._replace(verdict="beyond the end", lag=None)
    if record_at is not None and processed_at is not None and record_at > processed_at + _SKEW_SECONDS:
        return known._replace(verdict=LOOKS_RECREATED)
    return known


def findings(rows: list[Row]) -> tuple[Finding, ...]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.verdict not in _FINE:
            found[row.verdict.split()[0]].append(f"{row.topic}-{row.partition}")
    meanings = [(each, *_MEANINGS[verdict]) for verdict, each in sorted(found.items())]
    return tuple(Finding(starts, f"{shortened(each, 1)}: {text}") for each, starts, text in meanings)


def _record_times(
    connection: ClusterConnection,
    topics: Mapping[str, Topic],
    offsets: Mapping[Partition, int],
    starts: Mapping[Partition, LogOffset],
    ends: Mapping[Partition, LogOffset],
) -> dict[Partition, float]:
    wanted: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for (topic, partition), offset in offsets.items():
        start, end = starts[topic, partition].offset, ends[topic, partition].offset
        if topic in topics and start is not None and end is not None and start < offset <= end:
            wanted[topic][partition] = offset
    times: dict[Partition, float] = {}
    if not wanted:
        return times
    light_imports.complete()
    from kctl.kafka.consume import reading  # importing the consumer takes 100 ms

    seconds = max(connection.deadline.left_seconds, 1.0)
    try:
        with reading(connection.access, is_read_committed=False, timeout_seconds=seconds) as read:
            for topic, ends_of in wanted.items():
                for record in read(topic, {number: offset - 1 for number, offset in ends_of.items()}, ends_of):
                    if record.timestamp is not None:
                        times[topic, record.partition] = record.timestamp / 1000
    except KctlError:
        return times  # reading may not be permitted (ACL); the lag is known anyway
    return times
