"""Reads which brokers have a topic's partitions, and the topic's settings."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from kctl.errors import KctlError, PartitionMissing
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.reasons import code_failure, name_of_code

Partition: TypeAlias = tuple[str, int]
TOPIC_RESOURCE = 2
DEFAULT = "default"
_SOURCES = {1: "topic", 2: "broker", 3: "cluster", 4: "broker's file", 5: DEFAULT, 6: "logger", 7: "client", 8: "group"}


class PartitionLayout(NamedTuple):
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: str | None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class Topic(NamedTuple):
    """A topic with its partitions. If `error_code` is not 0, `partitions` may be empty."""

    name: str
    topic_id: str | None
    is_internal: bool
    error_code: int
    partitions: tuple[PartitionLayout, ...]


class Setting(NamedTuple):
    """A setting of a topic, or its default. `value` is None if the broker hides it."""

    name: str
    value: str | None
    source: str


class BrokerLoad(NamedTuple):
    leaders: int
    replicas: int
    not_in_sync: int


def topics_of(metadata: Any) -> dict[str, Topic]:
    return {topic.name: _topic(topic) for topic in sorted(metadata.topics, key=lambda each: each.name or "")}


def require(topics: dict[str, Topic], name: str, partition: int | None = None) -> Topic:
    """Checks that the topic exists and has `partition`. Raises TopicMissing, PartitionMissing, NotAuthorised."""
    topic = topics.get(name)
    code = 3 if topic is None else topic.error_code
    if topic is None or code:
        raise code_failure(code, f"topic {name}")
    if partition is not None and all(each.partition != partition for each in topic.partitions):
        raise PartitionMissing(
            f"topic {name} has no partition {partition} (UNKNOWN_TOPIC_OR_PARTITION): it has {len(topic.partitions)}, "
            f"from 0 to {len(topic.partitions) - 1}"
        )
    return topic


def broker_loads(topics: Iterable[Topic]) -> dict[int, BrokerLoad]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader is not None:
                leaders[partition.leader] += 1
            replicas.update(partition.replicas)
            behind.update(set(partition.replicas) - set(partition.isr))
    return {node: BrokerLoad(leaders[node], replicas[node], behind[node]) for node in leaders | replicas}


def settings_of_topic(connection: ClusterConnection, topic: str) -> list[Setting]:
    """Returns a topic's settings, sorted by name. Raises KctlError."""
    from kafka.protocol.admin import DescribeConfigsRequest  # importing these takes 20 ms, which `lag` does not need

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    response = connection.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=False))
    [result] = response.results
    if result.error_code:
        raise code_failure(result.error_code, f"the configuration of topic {topic}", result.error_message)
    return sorted(
        Setting(entry.name, None if entry.is_sensitive else entry.value, _SOURCES.get(entry.config_source, "?"))
        for entry in result.configs
    )


def quorum_leader(connection: ClusterConnection) -> int | None:
    """Returns the controller's id, or None if it is unknown."""
    # Asks the quorum, because KRaft hides the controller in Metadata.
    from kafka.protocol.admin import DescribeQuorumRequest  # as above

    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])]
    )
    try:
        response = connection.ask(request)
    except KctlError:
        return connection.controller_id  # a cluster with ZooKeeper has it in its metadata
    if response.error_code or not response.topics or response.topics[0].partitions[0].error_code:
        return None
    leader: int = response.topics[0].partitions[0].leader_id
    return leader if leader >= 0 else None


def _topic(topic: Any) -> Topic:
    partitions = tuple(
        PartitionLayout(
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas or ()),
            name_of_code(each.error_code),
        )
        for each in sorted(topic.partitions or (), key=lambda each: each.partition_index)
    )
    return Topic(
        topic.name,
        None if topic.topic_id is None else str(topic.topic_id),
        bool(topic.is_internal),
        topic.error_code,
        partitions,
    )
