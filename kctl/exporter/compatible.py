"""Our values under the names and labels of other exporters, on request; each with the label `cluster` besides.

What differs in meaning is in docs/exporter.md: what is not known is absent here too, never 0 or -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TypeAlias

from kctl.exporter.metric import Metric, OfCluster, OfGroup, PartitionColumn, Sample
from kctl.exporter.rows import Rows
from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.status.observations import Ints

__all__ = ["COMPATIBLE"]

_OfGroup: TypeAlias = Callable[[GroupSnapshot], Iterator[Sample]]
_OfCluster: TypeAlias = Callable[[ClusterSnapshot], Iterator[Sample]]


_LAG, _COMMITTED = attrgetter("lag"), attrgetter("committed")


def _topic_lag(group: GroupSnapshot) -> Iterator[Sample]:
    for topic, lag in group.lag.topics.items() if group.detail != "group" else ():
        if lag is not None:
            yield (group.cluster, group.group, topic), lag


def _topic_committed(group: GroupSnapshot) -> Iterator[Sample]:
    sums: dict[str, int] = {}
    for topic, committed in group.committed() if group.detail != "group" else ():
        sums[topic] = sums.get(topic, 0) + committed
    for topic, total in sums.items():
        yield (group.cluster, group.group, topic), total


def _members(group: GroupSnapshot) -> Iterator[Sample]:
    if group.stats is not None:
        yield (group.cluster, group.group), group.stats.members


def _group_info(group: GroupSnapshot) -> Iterator[Sample]:
    """With Kafka's own word for the state, and without the protocol, which is not asked for."""
    if group.stats is not None:
        state = group.stats.state.title().replace("_", "")
        coordinator = "" if group.coordinator is None else str(group.coordinator)
        labels = (group.cluster, group.group, "", group.protocol_type or "", state, coordinator)
        yield labels, float(state == "Stable")


def _partitions(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for topic, logs in cluster.topics.items():
        yield (cluster.cluster, topic), logs.partitions


def _offsets(which: int) -> _OfCluster:
    """0: ends, 1: starts."""

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for topic, logs in cluster.topics.items():
            for partition, offsets in logs.offsets.items():
                offset = offsets[which]
                if offset is not None:
                    yield (cluster.cluster, topic, str(partition)), offset

    return samples


def _sums(which: int) -> _OfCluster:
    """Of topics of which all partitions are known alone."""

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for topic, logs in cluster.topics.items():
            known = [offsets[which] for offsets in logs.offsets.values()]
            if logs.partitions == len(known) and None not in known:
                yield (cluster.cluster, topic), sum(offset or 0 for offset in known)

    return samples


def _brokers(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.brokers:
        yield (cluster.cluster,), len(cluster.brokers)


def _broker_info(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for node, address in cluster.brokers.items():
        yield (cluster.cluster, str(node), address), 1.0


def _up(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.cluster,), float(all(cluster.up.values()))


def _column(name: str, labels: tuple[str, ...], values: Callable[[Rows], Ints], ours: str) -> Metric:
    unit = "offset" if values is _COMMITTED else "messages"
    return PartitionColumn(name=name, labels=("cluster", *labels), unit=unit, sentence=f"`{ours}`.", values=values)


def _of_group(name: str, labels: tuple[str, ...], samples: _OfGroup, sentence: str, unit: str = "messages") -> Metric:
    return OfGroup(name=name, labels=("cluster", *labels), unit=unit, sentence=sentence, samples=samples)


def _of_cluster(name: str, labels: tuple[str, ...], samples: _OfCluster, sentence: str, unit: str = "offset") -> Metric:
    return OfCluster(name=name, labels=("cluster", *labels), unit=unit, sentence=sentence, samples=samples)


_EXPORTER_PARTITION = ("consumergroup", "topic", "partition")
_KAFKA_EXPORTER: tuple[Metric, ...] = (
    _of_cluster("kafka_brokers", (), _brokers, "How many brokers the cluster has.", "brokers"),
    _of_cluster("kafka_broker_info", ("id", "address"), _broker_info, "1 for each broker.", "0 or 1"),
    _of_cluster(
        "kafka_topic_partitions",
        ("topic",),
        _partitions,
        "How many partitions a topic has that a group reads.",
        "partitions",
    ),
    _of_cluster("kafka_topic_partition_current_offset", ("topic", "partition"), _offsets(0), "The end of a log."),
    _of_cluster("kafka_topic_partition_oldest_offset", ("topic", "partition"), _offsets(1), "The start of a log."),
    _column("kafka_consumergroup_current_offset", _EXPORTER_PARTITION, _COMMITTED, "kctl_consumer_committed_offset"),
    _of_group(
        "kafka_consumergroup_current_offset_sum",
        ("consumergroup", "topic"),
        _topic_committed,
        "The sum of the topic's committed offsets.",
        "offset",
    ),
    _column("kafka_consumergroup_lag", _EXPORTER_PARTITION, _LAG, "kctl_consumer_lag"),
    _of_group("kafka_consumergroup_lag_sum", ("consumergroup", "topic"), _topic_lag, "`kctl_topic_lag`."),
    _of_group("kafka_consumergroup_members", ("consumergroup",), _members, "`kctl_group_members`.", "members"),
)

_KMINION: tuple[Metric, ...] = (
    _of_cluster("kminion_exporter_up", (), _up, "Whether the last poll of the cluster had all of all parts.", "0 or 1"),
    _of_group(
        "kminion_kafka_consumer_group_info",
        ("group_id", "protocol", "protocol_type", "state", "coordinator_id"),
        _group_info,
        "1 while the group is in the state `Stable`, else 0; `protocol` is empty.",
        "0 or 1",
    ),
    _of_group("kminion_kafka_consumer_group_members", ("group_id",), _members, "`kctl_group_members`.", "members"),
    _of_group(
        "kminion_kafka_consumer_group_topic_offset_sum",
        ("group_id", "topic_name"),
        _topic_committed,
        "The sum of the topic's committed offsets.",
        "offset",
    ),
    _column(
        "kminion_kafka_consumer_group_topic_partition_lag",
        ("group_id", "topic_name", "partition_id"),
        _LAG,
        "kctl_consumer_lag",
    ),
    _of_group("kminion_kafka_consumer_group_topic_lag", ("group_id", "topic_name"), _topic_lag, "`kctl_topic_lag`."),
    _of_cluster(
        "kminion_kafka_topic_partition_low_water_mark",
        ("topic_name", "partition_id"),
        _offsets(1),
        "The start of a log.",
    ),
    _of_cluster("kminion_kafka_topic_low_water_mark_sum", ("topic_name",), _sums(1), "The sum of a topic's starts."),
    _of_cluster(
        "kminion_kafka_topic_partition_high_water_mark",
        ("topic_name", "partition_id"),
        _offsets(0),
        "The end of a log.",
    ),
    _of_cluster("kminion_kafka_topic_high_water_mark_sum", ("topic_name",), _sums(0), "The sum of a topic's ends."),
)

COMPATIBLE: Mapping[str, tuple[Metric, ...]] = {"kafka_exporter": _KAFKA_EXPORTER, "kminion": _KMINION}
"""By the words of `exporter.compatible_names`."""
