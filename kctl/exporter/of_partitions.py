"""The metrics of partitions and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from kctl.exporter.metric import GROUP, PARTITION, Column, Metric, Sample, Single, WordColumn
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import PartitionRow
from kctl.status import Assessment, Status

__all__ = ["ALIAS", "METRICS"]


def _of_row(value_of: Callable[[PartitionRow], float | None]) -> Callable[[FleetSnapshot], Sequence[float | None]]:
    return lambda snapshot: list(map(value_of, snapshot.partitions))


def _assessed(value_of: Callable[[Assessment], float | None]) -> Callable[[FleetSnapshot], Sequence[float | None]]:
    def values(snapshot: FleetSnapshot) -> Sequence[float | None]:
        if not snapshot.assessments:
            return [None] * len(snapshot.partitions)
        return list(map(value_of, snapshot.assessments))

    return values


def _status(snapshot: FleetSnapshot) -> Sequence[str | None]:
    if not snapshot.assessments:
        return [None] * len(snapshot.partitions)
    return [_WORDS[assessment.status] for assessment in snapshot.assessments]


def _topic_lag(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for topic, lag in snapshot.kafka_lag.topics.items():
        if lag is not None:
            yield (snapshot.cluster, snapshot.group, topic), lag


_WORDS = {status: status.value for status in Status}
_LAG = _of_row(attrgetter("lag"))

ALIAS = Column(
    name="kafka_consumergroup_lag",
    labels=("consumergroup", "topic", "partition"),
    unit="messages",
    sentence="kctl_consumer_lag under the name and labels that dashboards made for other exporters ask for; only with "
    "`http.lag_alias = true`.",
    values=_LAG,
)

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
    Single(
        name="kctl_topic_lag",
        labels=(*GROUP, "topic"),
        unit="messages",
        sentence="The sum of the topic's lags that are known.",
        samples=_topic_lag,
    ),
)
