"""Metrics of partitions and topics."""

from collections.abc import Callable
from operator import attrgetter

import numpy as np

from kctl.exporter.metric import (
    GROUP,
    PARTITION,
    Metric,
    OfGroup,
    PartitionColumn,
    Sample,
    WordColumn,
    by_label,
    quoted,
)
from kctl.groups.snapshot import GroupColumns, GroupSnapshot
from kctl.rows.columns import ABSENT, Ints, Reals
from kctl.status import Status


def _topic_lag(group: GroupSnapshot) -> list[Sample]:
    topics = {} if group.detail == "group" else group.lag.topics
    return by_label({topic: lag for topic, lag in topics.items() if lag is not None})


def _assessed(name: str) -> Callable[[GroupColumns], Reals]:
    return lambda shown: shown.assessments.column(name)


def _ahead(shown: GroupColumns) -> Ints:
    end, committed = shown.partitions.end, shown.partitions.committed
    return np.where((end != ABSENT) & (committed > end), committed - end, ABSENT)


def _lost(shown: GroupColumns) -> Ints:
    start, committed, share_lag = shown.partitions.start, shown.partitions.committed, shown.partitions.share_lag
    is_lost = (committed != ABSENT) & (committed < start) & (share_lag is None or share_lag == ABSENT)
    return np.where(is_lost, start - committed, ABSENT)


def _oldest_unhandled(shown: GroupColumns) -> Reals | None:
    is_known = shown.partitions.stored_messages is not None
    return shown.assessments.column("oldest_unhandled_seconds") if is_known else None


METRICS: tuple[Metric, ...] = (
    PartitionColumn(
        name="kctl_consumer_lag",
        sentence="Messages between the group's committed offset and the end of the partition. Before the first "
        "commit, the lag counts from the log start (`kafka.auto_offset_reset` `earliest`) or from the worker's "
        "position (`latest`).",
        values=attrgetter("partitions.lag"),
    ),
    PartitionColumn(
        name="kctl_consumer_lag_seconds",
        sentence="The longest time that a message in the lag can have waited: the age of the last processed record, or "
        "the time since the lag was last 0 if this is shorter. 0 if the lag is 0. Beyond an hour, kctl "
        "estimates it from the pace of arrivals.",
        values=_assessed("lag_seconds"),
    ),
    PartitionColumn(
        name="kctl_consumer_lag_growth_per_second",
        sentence="The growth of the lag per second, from commit to commit over the last minutes. Negative while the "
        "lag falls.",
        values=_assessed("growth_per_second"),
    ),
    PartitionColumn(
        name="kctl_consumer_catchup_seconds",
        sentence="The time until the lag is 0 if it keeps falling as in the last minutes. 0 without lag. Absent "
        "while the lag does not fall.",
        values=_assessed("catchup_seconds"),
    ),
    PartitionColumn(
        name="kctl_consumer_oldest_unhandled_seconds",
        sentence="The age of the partition's oldest unhandled message, in Kafka (`kctl_consumer_lag_seconds`) or in "
        "the storage. Only for the fleet's own group.",
        values=_oldest_unhandled,
    ),
    PartitionColumn(
        name="kctl_consumer_committed_offset",
        sentence="The offset that the group has committed.",
        values=attrgetter("partitions.committed"),
    ),
    PartitionColumn(
        name="kctl_consumer_position_offset",
        sentence="The next offset that the partition's worker will read.",
        values=attrgetter("partitions.position"),
    ),
    PartitionColumn(
        name="kctl_consumer_ahead",
        sentence="How far the committed offset is above the end of the partition, for example because its topic was "
        "recreated. The group will skip this many messages. The lag is 0, or unknown for a checkpoint. Absent if the "
        "offset is not above the end.",
        values=_ahead,
    ),
    PartitionColumn(
        name="kctl_consumer_lost_messages",
        sentence="How far the committed offset is below the start of the partition. Retention has removed this many "
        "unread offsets. The lag includes them. Absent otherwise.",
        values=_lost,
    ),
    WordColumn(
        name="kctl_consumer_status",
        labels=(*PARTITION, "status"),
        sentence=f"1 for the status of the partition: {quoted(Status)}. Other statuses are absent. See status.md.",
        values=attrgetter("assessments.status"),
        words=[status.value for status in Status],
    ),
    PartitionColumn(
        name="kctl_partition_start_offset",
        sentence="The start of the partition: the first offset that has not been removed.",
        values=attrgetter("partitions.start"),
    ),
    PartitionColumn(
        name="kctl_partition_end_offset",
        sentence="The end of the partition: the offset of the next message. With `read_committed`, the last stable "
        "offset.",
        values=attrgetter("partitions.end"),
    ),
    OfGroup(
        name="kctl_topic_lag",
        labels=(*GROUP, "topic"),
        sentence="The sum of the topic's known lags.",
        samples=_topic_lag,
    ),
)
