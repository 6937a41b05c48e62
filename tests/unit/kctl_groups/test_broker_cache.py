import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from kctl.errors import BrokerUnreachable
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.layout import Partition
from kctl.kafka.groups import ListedGroup
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import by_topic
from kctl.reduce.partitions import offset_checker
from kctl.rows.partitions import PartitionRow
from tests.clock import Clock

A, B = ("orders", 0), ("orders", 1)


class ScriptedReader(ClusterReader):
    def __init__(self, *polls: ClusterReading | Exception | threading.Event) -> None:
        self.polls = list(polls)
        self.is_closed = False

    def read(self) -> ClusterReading:
        poll = self.polls.pop(0)
        if isinstance(poll, threading.Event):
            poll.wait(60)
            return self.read()
        if isinstance(poll, Exception):
            raise poll
        return poll

    def close(self) -> None:
        self.is_closed = True


def reading(
    committed: Mapping[Partition, int | None],
    end: Mapping[Partition, int],
    *,
    partitions: int = 2,
    unclear: frozenset[str] = frozenset(),
    errors: Mapping[str, str] | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> ClusterReading:
    known = {key: offset for key, offset in committed.items() if offset is not None}
    return ClusterReading(
        groups={"readers": ListedGroup("readers", "classic", "PreparingRebalance", "consumer", 1)},
        members={"readers": 3},
        committed={"readers": by_topic(known)} if committed else {},
        start=dict.fromkeys(end, 0),
        end=dict(end),
        topic_ids=dict(topic_ids or {}),
        partitions={"orders": partitions} if partitions else {},
        unclear_topics=set(unclear),
        missing_topics=() if partitions or unclear else ("orders",),
        errors=dict(errors or {}),
    )


FULL = reading({A: 5, B: None}, {A: 10, B: 20})


@pytest.fixture
async def cluster_of(anyio_backend: str) -> AsyncIterator[Callable[..., tuple[BrokerCache, ScriptedReader, Clock]]]:
    made = []

    def make(*polls: Any) -> tuple[BrokerCache, ScriptedReader, Clock]:
        clock, reader = Clock(), ScriptedReader(*polls)
        cluster = BrokerCache(reader, "broker:9092", "readers", clock)
        made.append((cluster, reader))
        return cluster, reader, clock

    yield make
    for cluster, reader in made:
        await cluster.close()
        assert reader.is_closed


def rows(cluster: BrokerCache) -> list[PartitionRow]:
    return list(offset_checker((), cluster.snapshot()).rows())


async def test_there_are_no_offsets_before_the_first_answer_and_a_check_is_one(cluster_of: Any) -> None:
    cluster, _, _ = cluster_of(BrokerUnreachable("nobody there"))

    await cluster.refresh(5)

    assert (len(cluster.snapshot().partitions.names), cluster.snapshot().group) == (0, None)
    assert cluster.last_success == {}
    assert "nobody there" in (cluster.error or "")

    later = reading({A: 5, B: None}, {A: 10, B: 20})
    later.start.clear()
    cluster, _, _ = cluster_of(FULL, later)
    await cluster.check()
    await cluster.refresh(5)

    assert [row.remaining_count for row in rows(cluster)] == [5, 20]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (reading({}, {A: 11, B: 21}, errors={"committed": "NotCoordinator"}), [(5, 11, 10), (None, 21, 10)]),
        (reading({A: 6, B: None}, {A: 12}), [(6, 12, 0), (None, 20, 10)]),
    ],
    ids=["the commits", "one end"],
)
async def test_what_has_no_answer_ages_alone(cluster_of: Any, second: ClusterReading, expected: list[object]) -> None:
    cluster, _, clock = cluster_of(FULL, second)
    await cluster.refresh(5)
    clock.now += 10
    await cluster.refresh(5)

    assert [(row.current_offset, row.kafka_max_offset, row.age_seconds) for row in rows(cluster)] == expected
    clock.now += 10
    assert (cluster.freshness().age_seconds, cluster.freshness().stale_after_seconds) == (10, 15)


async def test_of_a_deleted_or_recreated_topic_nothing_is_kept(cluster_of: Any) -> None:
    cluster, _, clock = cluster_of(
        FULL, reading({}, {}, partitions=0, unclear=frozenset({"orders"})), reading({}, {}, partitions=0)
    )
    await cluster.refresh(5)
    clock.now += 1
    await cluster.refresh(5)
    assert (len(rows(cluster)), cluster.freshness().missing_topics) == (2, ())

    await cluster.refresh(5)
    assert (rows(cluster), cluster.freshness().missing_topics) == ([], ("orders",))

    first = {"orders": "first"}
    polls = (
        reading({A: 5}, {A: 10}, partitions=1, topic_ids=first),
        reading({}, {}, partitions=1, topic_ids=first),
        reading({}, {}, partitions=1, topic_ids={"orders": "second"}),
    )
    cluster, _, _ = cluster_of(*polls)
    await cluster.refresh(5)
    await cluster.refresh(5)
    assert [(row.current_offset, row.kafka_max_offset) for row in rows(cluster)] == [(5, 10)]

    await cluster.refresh(5)
    [row] = rows(cluster)
    assert (row.current_offset, row.kafka_max_offset, row.remaining_count) == (None, None, None)


async def test_a_hanging_broker_does_not_delay_others_and_its_late_answer_counts(cluster_of: Any) -> None:
    hang = threading.Event()
    cluster, _, clock = cluster_of(FULL, hang, reading({A: 7, B: 8}, {A: 30, B: 30}))
    await cluster.refresh(5)

    clock.now += 10
    async with asyncio.timeout(5):
        await cluster.refresh(0.01)
        await cluster.refresh(0.01)
    assert [row.age_seconds for row in rows(cluster)] == [10, 10]

    hang.set()
    await cluster._running
    assert [(row.current_offset, row.age_seconds) for row in rows(cluster)] == [(7, 0), (8, 0)]


async def test_waiting_for_a_poll_can_be_cancelled_in_the_very_moment_it_ends(cluster_of: Any) -> None:
    hang = threading.Event()
    cluster, _, _ = cluster_of(hang, FULL)
    waiting = asyncio.ensure_future(cluster.refresh(60))
    await asyncio.sleep(0)  # the task now waits, and hears of the end before this test does
    cluster._running.add_done_callback(lambda _: waiting.cancel())

    hang.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_after_failures_and_defects_a_growing_pause_follows_until_a_success(cluster_of: Any) -> None:
    cluster, reader, clock = cluster_of(BrokerUnreachable("1"), BrokerUnreachable("2"), FULL)
    await cluster.refresh(5)
    await cluster.refresh(5)
    assert len(reader.polls) == 2

    clock.now += 1.0
    await cluster.refresh(5)
    clock.now += 1.0
    await cluster.refresh(5)
    assert len(reader.polls) == 1

    clock.now += 1.0
    await cluster.refresh(5)
    assert reader.polls == []
    assert cluster.error is None
    reader.polls.append(AttributeError("'NoneType' object has no attribute 'send'"))
    clock.now += 1
    await cluster.refresh(5)
    assert len(rows(cluster)) == 2
    assert "NoneType" in (cluster.error or "")


async def test_brokers_are_just_back_for_three_seconds_after_a_gap_that_was_reported(cluster_of: Any) -> None:
    part = reading({}, {A: 11, B: 21}, errors={"committed": "NotCoordinator"})
    cluster, reader, clock = cluster_of(FULL)
    await cluster.refresh(5)

    for gap, expected in (4.0, False), (6.0, True):
        reader.polls += [part, FULL]
        await cluster.refresh(5)
        clock.now += gap
        await cluster.refresh(5)
        assert cluster.freshness().are_just_back is expected
    clock.now += 3.0
    assert not cluster.freshness().are_just_back
