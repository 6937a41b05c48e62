"""A partition without a leader, in a real cluster: of the others everything is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError

from kctl_agent.attached.brokers import EndOffsets
from kctl_agent.worker.offsets.brokers import Bounds, Brokers, BrokerWatcher
from kctl_agent.worker.settings import KafkaSettings
from tests.clusters import running_cluster
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TOPIC = "orders"
PARTITIONS = frozenset(TopicPartition(TOPIC, number) for number in range(3))


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster({"default.replication.factor": "1"}) as running:
        yield running


def settings(cluster: KafkaCluster) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=cluster.bootstrap_servers,
        group="readers",
        topics=(TOPIC,),
        auto_offset_reset="earliest",
        assignor="range",
        session_timeout_seconds=6.0,
        heartbeat_interval_seconds=1.0,
        isolation_level="read_uncommitted",
        group_instance_id=None,
    )


def leaders(cluster: KafkaCluster) -> dict[int, int]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [topic] = admin.describe_topics([TOPIC])
        return {each["partition_index"]: each["leader_id"] for each in topic["partitions"]}


def test_of_a_partition_without_leader_the_reason_is_reported_and_of_the_others_everything(
    cluster: KafkaCluster,
) -> None:
    topics.create_topic(cluster.bootstrap_servers, TOPIC, len(PARTITIONS))
    led = leaders(cluster)
    assert len(set(led.values())) == 3, "each broker leads one"
    brokers = Brokers(settings(cluster), "worker-0")
    watcher = BrokerWatcher(brokers, lambda: PARTITIONS, every_seconds=0.2)
    watcher.start()
    attached, partitions = EndOffsets(cluster.bootstrap_servers), [tuple(tp) for tp in sorted(PARTITIONS)]
    try:
        eventually(lambda: found(brokers)[0].keys() == PARTITIONS, 60, "all are answered for")
        bad = TopicPartition(TOPIC, 0)
        cluster.brokers[led[0]].kill()

        def is_bad(bounds: Bounds) -> bool:
            return bounds.unanswered.keys() == {bad} and bounds.starts.keys() == PARTITIONS - {bad}

        eventually(lambda: is_bad(brokers.bounds(PARTITIONS)), 60, "the others are answered for")
        eventually(lambda: brokers.bounds(PARTITIONS).unanswered[bad] == "it has no leader", 60, "it has none")
        answered, unanswered = eventually(lambda: found(brokers)[0] and found(brokers), 60, "the group is known")
        assert (answered.keys(), unanswered) == (PARTITIONS - {bad}, {bad: "it has no leader"})
        with pytest.raises(KafkaError):
            brokers.bounds([bad])
        others = {tuple(tp) for tp in PARTITIONS - {bad}}
        eventually(lambda: [each.keys() for each in attached.bounds(partitions)] == [others] * 2, 60, "attached too")
        eventually(lambda: watcher.view.unanswered.keys() == {bad} and watcher.view.ends.keys() == PARTITIONS - {bad})

        cluster.start()
        eventually(lambda: found(brokers)[0].keys() == PARTITIONS, 60, "all are answered for again")
        eventually(lambda: not watcher.view.unanswered and watcher.view.ends.keys() == PARTITIONS)
    finally:
        watcher.stop()
        brokers.close()
        attached.close()


def found(brokers: Brokers) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, str]]:
    try:
        return brokers.found(PARTITIONS)
    except KafkaError:
        return {}, {}
