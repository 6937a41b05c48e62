"""The brokers' offsets from a real broker: the same as Kafka's own tool, and what an outage does to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from kafka import KafkaProducer

from kctl.config.sections import KafkaSection
from kctl.errors import BrokerUnreachable, TopicMissing
from kctl.kafka.client.access import plain
from kctl.kafka.polls.broker_cache import BrokerCache
from kctl.reduce.partitions import offset_checker
from kctl.rows.partitions import PartitionRow
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("collected_here"),
    # kafka-python drops the sockets of failed connects without closing them; the garbage collector does.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def own_broker(short_dir: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(short_dir) as running:
        topics.create_topic(running.bootstrap_servers, "orders", 3)
        yield running


def settings(
    broker: KafkaBroker,
    topic: str = "orders",
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
) -> KafkaSection:
    return KafkaSection(
        bootstrap_servers=broker.bootstrap_servers, group="readers", topics=(topic,), isolation_level=isolation_level
    )


def produce(broker: KafkaBroker, count: int, transactional_id: str | None = None) -> None:
    """`count` messages to partition 0; with a transactional id, in a transaction that is left open."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
    if transactional_id:
        producer.init_transactions()
        producer.begin_transaction()
    for number in range(count):
        producer.send("orders", str(number).encode(), partition=0)
    producer.flush()
    producer.close()


def drive(cluster: BrokerCache, scenario: Callable[[], Awaitable[None]]) -> None:
    async def both() -> None:
        try:
            await scenario()
        finally:
            await cluster.close()

    asyncio.run(both())


def partitions(cluster: BrokerCache) -> tuple[PartitionRow, ...]:
    return offset_checker((), cluster.snapshot()).rows


async def refreshed(cluster: BrokerCache, is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await cluster.refresh(5)
            await asyncio.sleep(0.05)


def test_with_read_committed_the_end_is_the_last_stable_offset(own_broker: KafkaBroker) -> None:
    produce(own_broker, 5)
    produce(own_broker, 7, "open transaction")
    committed_only = settings(own_broker, isolation_level="read_committed")
    stable = BrokerCache.of(committed_only, plain(own_broker.bootstrap_servers), 5)

    async def scenario() -> None:
        await refreshed(stable, lambda: partitions(stable) != ())
        assert partitions(stable)[0].end == 5

    drive(stable, scenario)


def test_a_broker_that_is_away_leaves_old_offsets_and_is_found_again(own_broker: KafkaBroker) -> None:
    produce(own_broker, 10)
    cluster = BrokerCache.of(settings(own_broker), plain(own_broker.bootstrap_servers), 1)

    async def scenario() -> None:
        await refreshed(cluster, lambda: "committed" in cluster.last_success)
        before = partitions(cluster)

        own_broker.stop()
        await refreshed(cluster, lambda: cluster.error is not None)
        first = partitions(cluster)
        await refreshed(cluster, lambda: partitions(cluster)[0].age_seconds > first[0].age_seconds + 1)
        assert [(row.committed, row.end) for row in partitions(cluster)] == [(r.committed, r.end) for r in before]

        own_broker.restart()
        await refreshed(cluster, lambda: cluster.error is None)
        assert partitions(cluster)[0].end == 10
        assert partitions(cluster)[0].age_seconds < 1

    drive(cluster, scenario)


def test_what_is_missing_is_reported_before_anything_starts(own_broker: KafkaBroker) -> None:
    nothing = BrokerCache.of(settings(own_broker, topic="nonsense"), plain(own_broker.bootstrap_servers), 2)

    async def no_topic() -> None:
        with pytest.raises(TopicMissing):
            await nothing.check()

    drive(nothing, no_topic)
    own_broker.stop()
    nobody = BrokerCache.of(settings(own_broker), plain(own_broker.bootstrap_servers), 2)

    async def no_broker() -> None:
        with pytest.raises(BrokerUnreachable):
            await nobody.check()

    drive(nobody, no_broker)
