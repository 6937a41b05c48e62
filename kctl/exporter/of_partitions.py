"""The metrics of partitions and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from kctl.exporter.metric import GROUP, PARTITION, Column, Metric, OfGroup, Rows, Sample, WordColumn
from kctl.groups.snapshot import GroupSnapshot
from kctl.reduce import PartitionRow
from kctl.status import Assessment, Status

__all__ = ["METRICS"]


def _of_row(value_of: Callable[[PartitionRow], float | None]) -> Callable[[Rows], Sequence[float | None]]:
    return lambda rows: list(map(value_of, rows.partitions))


def _assessed(value_of: Callable[[Assessment], float | None]) -> Callable[[Rows], Sequence[float | None]]:
    def values(rows: Rows) -> Sequence[float | None]:
        if not rows.assessments:
            return [None] * len(rows.partitions)
        return list(map(value_of, rows.assessments))

    return values


def _status(rows: Rows) -> Sequence[str | None]:
    if not rows.assessments:
        return [None] * len(rows.partitions)
    return [_WORDS[assessment.status] for assessment in rows.assessments]


def _topic_lag(group: GroupSnapshot) -> Iterator[Sample]:
    if group.detail == "group":
        return
    for topic, lag in group.lag.topics.items():
        if lag is not None:
            yield (group.cluster, group.group, topic), lag


def _ahead(row: PartitionRow) -> int | None:
    """None where the offset is not above the end: then there is nothing to show."""
    return None if row.committed is None or row.end is None or row.committed <= row.end else row.committed - row.end


def _lost(row: PartitionRow) -> int | None:
    """None where nothing is lost."""
    if row.committed is None or row.start is None or row.committed >= row.start or row.share_lag is not None:
        return None
    return row.start - row.committed


_WORDS = {status: status.value for status in Status}
_LAG = _of_row(attrgetter("lag"))

METRICS: tuple[Metric, ...] = (
    Column(
        name="kctl_consumer_lag",
        unit="messages",
        sentence="Messages between the group's committed offset and the end of the partition. Before the first commit: "
        "from the log start with `kafka.auto_offset_reset` `earliest`, from its worker's position with `latest`.",
        values=_LAG,
    ),
    Column(
        name="kctl_consumer_lag_seconds",
        unit="seconds",
        sentence="The longest that a message which waits can have waited: the time since the last processed record's "
        "timestamp, or since nothing waited, whichever is later (beyond an hour by the pace of arrivals); 0 when "
        "nothing waits.",
        values=_assessed(attrgetter("lag_seconds")),
    ),
    Column(
        name="kctl_consumer_lag_growth_per_second",
        unit="messages per second",
        sentence="By how much the lag grows each second, from commit to commit over the last minutes; negative while "
        "it falls.",
        values=_assessed(attrgetter("growth_per_second")),
    ),
    Column(
        name="kctl_consumer_catchup_seconds",
        unit="seconds",
        sentence="Time until the lag is gone if it goes on falling like this; 0 when it is gone, absent while it does "
        "not fall.",
        values=_assessed(attrgetter("catchup_seconds")),
    ),
    Column(
        name="kctl_consumer_committed_offset",
        unit="offset",
        sentence="The offset that the group has committed.",
        values=_of_row(attrgetter("committed")),
    ),
    Column(
        name="kctl_consumer_position_offset",
        unit="offset",
        sentence="The next offset that the partition's worker will read.",
        values=_of_row(attrgetter("position")),
    ),
    Column(
        name="kctl_consumer_ahead",
        unit="messages",
        sentence="By how much the committed offset lies above the end of the partition, as after it was cut off or its "
        "topic recreated: so many messages will be skipped. Absent where it does not; the lag is 0 then.",
        values=_of_row(_ahead),
    ),
    Column(
        name="kctl_consumer_lost_messages",
        unit="messages",
        sentence="By how much the committed offset lies below the first offset that the brokers still have: retention "
        "has removed so many offsets that were not read. Absent where it does not; the lag counts them.",
        values=_of_row(_lost),
    ),
    WordColumn(
        name="kctl_consumer_status",
        labels=(*PARTITION, "status"),
        unit="0 or 1",
        sentence="1 for the status that the partition has; the others are absent: "
        + ", ".join(f"`{status.value}`" for status in Status)
        + ". See status.md.",
        values=_status,
    ),
    Column(
        name="kctl_partition_start_offset",
        unit="offset",
        sentence="The first offset that the brokers still have.",
        values=_of_row(attrgetter("start")),
    ),
    Column(
        name="kctl_partition_end_offset",
        unit="offset",
        sentence="The end of the partition: the offset of the next message; with `read_committed`, the last stable "
        "offset.",
        values=_of_row(attrgetter("end")),
    ),
    OfGroup(
        name="kctl_topic_lag",
        labels=(*GROUP, "topic"),
        unit="messages",
        sentence="The sum of the topic's lags that are known.",
        samples=_topic_lag,
    ),
)
