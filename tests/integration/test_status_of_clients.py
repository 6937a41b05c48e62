"""The status of another client's group on a real broker: it commits, stands still, leaves, and loses messages."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from kctl.config.sections import KafkaSection
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.access import plain
from kctl.status import Assessment, Assessor, Owner, Status, StatusRules
from kctl.status.owners import Owners
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.usefixtures("collected_here"),
    # kafka-python drops the sockets of failed connects without closing them; the garbage collector does.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RULES = StatusRules(window_seconds=2.0, hold_seconds=0.0, batch_limit_seconds=4.0)
TOPIC = "read-by-others"
ORDERS = TopicPartition(TOPIC, 0)


class Client:
    """On its own thread, as kafka-python requires."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._commits, self._leaves = threading.Event(), threading.Event()
        self._commits.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stand_still(self) -> None:
        """It stays a member, and commits nothing."""
        self._commits.clear()

    def leave(self) -> None:
        self._leaves.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=self._servers, group_id="theirs", enable_auto_commit=False, max_poll_records=1
        )
        with closing(consumer):
            offset = 0
            while not self._leaves.wait(0.3):
                consumer.poll(timeout_ms=100)
                if self._commits.is_set() and consumer.assignment():
                    offset += 1
                    consumer.commit({ORDERS: OffsetAndMetadata(offset, "", -1)})


@contextmanager
def client(broker: KafkaBroker) -> Iterator[Client]:
    found = Client(broker.bootstrap_servers)
    try:
        yield found
    finally:
        found.leave()


class Watch:
    def __init__(self, broker: KafkaBroker) -> None:
        servers = broker.bootstrap_servers
        kafka = KafkaSection(
            bootstrap_servers=servers, group="theirs", topics=(TOPIC,), isolation_level="read_committed"
        )
        self._cache = BrokerCache.of(kafka, plain(servers), 5)
        self._assessor = Assessor(RULES)

    async def until(self, is_so: Callable[[Assessment], bool], seconds: float = 30.0) -> list[Assessment]:
        found: list[Assessment] = []
        async with asyncio.timeout(seconds):
            while not found or not is_so(found[-1]):
                await self._cache.refresh(5)
                snapshot = self._cache.snapshot()
                members = None if snapshot.group is None else snapshot.group.members
                owner = Owner(None, None, None, members=members)
                owners = Owners.of([owner] * len(snapshot.partitions.names))
                found += self._assessor.assess(snapshot.partitions, owners, time.time())
                await asyncio.sleep(0.1)
        return found

    async def close(self) -> None:
        await self._cache.close()


@pytest.mark.shows("groups of other clients are judged by their behavior")
def test_a_client_that_commits_stands_still_leaves_and_loses_is_judged_so(broker: KafkaBroker) -> None:
    topics.create_topic(broker.bootstrap_servers, TOPIC, 1)
    topics.produce(broker.bootstrap_servers, TOPIC, {0: 1000})
    asyncio.run(judged(broker))


async def judged(broker: KafkaBroker) -> None:
    watch = Watch(broker)
    try:
        with client(broker) as theirs:
            await watch.until(lambda found: found.status is Status.OK and "commits come" in found.reason)

            theirs.stand_still()
            found = await watch.until(lambda found: found.status not in (Status.OK, Status.UNKNOWN, Status.WARN))
            assert found[-1].status is Status.STALLED
            assert "its group has 1 member" in found[-1].reason

            await asyncio.to_thread(theirs.leave)
            found = await watch.until(lambda found: found.status is not Status.STALLED)
            assert found[-1].status is Status.STOPPED
            assert "its group has no members" in found[-1].reason

        topics.delete_records(broker.bootstrap_servers, TOPIC, {0: 500})
        found = await watch.until(lambda found: found.status is not Status.STOPPED)
        assert found[-1].status is Status.LOSING
        assert "were removed before they were read; " in found[-1].reason

        await asyncio.to_thread(kafka_tools.reset_offsets, broker.bootstrap_servers, "theirs", TOPIC, "latest")
        found = await watch.until(lambda found: found.status is not Status.LOSING)
        assert found[-1].status in (Status.OK, Status.IDLE)
    finally:
        await watch.close()
