"""The brokers' offsets of a fleet that reads only committed records."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from kafka import KafkaProducer

from kctl.config.sections import KafkaSection
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.access import plain
from kctl.reduce.partitions import kafka_lag, offset_checker
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.usefixtures("collected_here")


def test_with_read_committed_the_end_is_the_last_stable_offset(broker: KafkaBroker) -> None:
    topics.produce(broker.bootstrap_servers, "orders", {0: 5})
    section = KafkaSection(
        bootstrap_servers=broker.bootstrap_servers,
        group="readers",
        topics=("orders",),
        isolation_level="read_committed",
    )
    cache = BrokerCache.of(section, plain(broker.bootstrap_servers), 5)

    async def end() -> tuple[int | None, ...]:
        try:
            async with asyncio.timeout(30):
                while not len((found := offset_checker((), cache.snapshot())).names):
                    await cache.refresh(5)
            row = next(found.rows())
            return row.kafka_max_offset, row.behind_transaction, kafka_lag(found).behind_transaction
        finally:
            await cache.close()

    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x", partition=0)
        producer.flush()
        found = asyncio.run(end())
        # The broker would end it after a minute with a marker, in any topic that has this name by then.
        producer.abort_transaction()

    assert found == (5, 1, 1)
