import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from math import inf
from typing import Any

import pytest

from kctl.config.sections import KafkaSection
from kctl.errors import GroupMissing, NotAuthorised
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.access import plain
from kctl.kafka.client.layout import Partition
from kctl.kafka.groups import Group, ListedGroup
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.polls.group_sources import MissingGroups
from kctl.reduce.base import BrokerSnapshot, GroupStats
from tests.clock import Clock
from tests.servers.broker_frames import metadata_fields
from tests.servers.scripted_broker import Answers, ScriptedBroker, Step
from tests.unit.kctl_kafka.scripts import LOADING, NOT_COORDINATOR, described, fetched, group, listed_offsets, member

FIRST, SECOND = ("orders", 0), ("orders", 1)
NOT_LEADER, NO_SUCH_TOPIC = 6, 3
ENDS = listed_offsets({FIRST: 10, SECOND: 20})
STABLE = group("readers", members=[member("one", orders=[0, 1])])


class Coordinator:
    state = "knows"

    def script(self) -> dict[str, Step | Sequence[Step]]:
        return {
            "DescribeGroups": Answers(self._described),
            "ListGroups": Answers({"groups": []}),
            "OffsetFetch": Answers(self._fetched),
            "ListOffsets": ENDS,
        }

    def _described(self, request: Any) -> Any:
        known = {"knows": [STABLE], "moves": [group("readers", code=NOT_COORDINATOR)], "denies": []}[self.state]
        fields = described(*known).result
        assert callable(fields)
        return fields(request)

    def _fetched(self, request: Any) -> Any:
        offsets = {"knows": {FIRST: 5}, "moves": NOT_COORDINATOR, "denies": {}}[self.state]
        fields = fetched({"readers": offsets}).result  # type: ignore[dict-item]
        assert callable(fields)
        return fields(request)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def broker(coordinator: Coordinator) -> Iterator[ScriptedBroker]:
    with ScriptedBroker(coordinator.script(), topics={"orders": 2}) as started:
        yield started


@pytest.fixture
def reader(broker: ScriptedBroker) -> Iterator[ClusterReader]:
    with closing(reader_of(broker)) as made:
        yield made


def reader_of(broker: ScriptedBroker) -> ClusterReader:
    return ClusterReader.of_group(plain(broker.address), "readers", ["orders"], "read_uncommitted", 10)


@contextmanager
def led_by(leaders: dict[str, list[int]], *list_offsets: Step) -> Iterator[tuple[ScriptedBroker, ClusterReader]]:
    """`leaders` may change. `list_offsets` are the answers of the first broker."""
    brokers = dict[int, str]()

    def metadata(request: Any) -> Any:
        return metadata_fields(brokers, leaders, [topic.name for topic in request.topics])

    script = Coordinator().script() | {"Metadata": Answers(metadata), "ListOffsets": list_offsets or ENDS}
    with (
        ScriptedBroker(script) as broker,
        ScriptedBroker({"ListOffsets": ENDS}, node_id=2) as other,
        closing(reader_of(broker)) as reader,
    ):
        brokers |= {1: broker.address, 2: other.address}
        yield broker, reader


def committed(reading: ClusterReading) -> dict[str, dict[Partition, int]]:
    return {name: dict(each.items()) for name, each in reading.committed.items()}


@pytest.mark.shows("a poll of a fleet's own group takes three requests")
def test_a_group_denied_by_a_new_coordinator_grows_older(broker: ScriptedBroker, coordinator: Coordinator) -> None:
    """For some seconds after a failover, the coordinator knows only what its followers have fetched."""
    config = KafkaSection(bootstrap_servers=broker.address, group="readers", topics=("orders",))

    async def polls() -> tuple[BrokerSnapshot, BrokerSnapshot, BrokerSnapshot]:
        cache = BrokerCache.of(config, plain(broker.address), 10)
        try:
            await cache.refresh(60)
            known = cache.snapshot()
            coordinator.state = "moves"
            await cache.refresh(60)
            coordinator.state = "denies"
            await cache.refresh(60)
            denied = cache.snapshot()
            assert cache.last_success["offsets"] > cache.last_success["committed"] == cache.last_success["group"]
            assert "just taken over" in (cache.error or "")
            coordinator.state = "knows"
            await cache.refresh(60)
            assert cache.error is None
            return known, denied, cache.snapshot()
        finally:
            await cache.close()

    known, denied, back = asyncio.run(polls())

    assert known.group == back.group == GroupStats("stable", 1)
    before, after = known.partitions.of_group(0), denied.partitions.of_group(0)
    assert [row.current_offset for row in before] == [row.current_offset for row in after] == [5, None]
    assert denied.group is None, "that it is dead would be a guess"
    assert all((old.age_seconds or 0) > (row.age_seconds or inf) for old, row in zip(after, before, strict=True))


def test_denied_by_the_coordinator_that_had_it_a_group_is_gone(reader: ClusterReader, coordinator: Coordinator) -> None:
    reader.read()
    coordinator.state = "denies"
    gone = reader.read()

    assert (gone.groups["readers"].state, gone.members, gone.unclear) == ("Dead", {"readers": 0}, set())
    assert committed(gone) == {"readers": {}}, "nothing, which is knowledge"


def test_a_group_never_seen_is_dead(reader: ClusterReader, broker: ScriptedBroker, coordinator: Coordinator) -> None:
    coordinator.state = "denies"
    absent = [reader.read() for _ in range(3)]
    described_before = broker.asked.count("DescribeGroups")
    coordinator.state = "knows"
    begun = reader.read()

    assert [(each.groups["readers"].state, committed(each), each.errors) for each in absent] == [
        ("Dead", {"readers": {}}, {})
    ] * 3
    assert described_before == 1, "to be sure that there is none takes a request of each kind"
    assert committed(begun) == {"readers": {FIRST: 5}}


def test_a_poll_is_three_requests(reader: ClusterReader, broker: ScriptedBroker) -> None:
    first = reader.read()
    at_first = set(broker.asked)
    before = len(broker.asked)
    second = reader.read()

    assert broker.asked[before:] == ["DescribeGroups", "OffsetFetch", "ListOffsets"]
    assert at_first == {"ApiVersions", "Metadata", "FindCoordinator", "DescribeGroups", "OffsetFetch", "ListOffsets"}
    assert (broker.asked.count("Metadata"), broker.asked.count("ListOffsets")) == (1, 3)
    assert first.start == first.end == second.end == {FIRST: 10, SECOND: 20}
    assert second.start == {}, "where logs begin changes rarely"
    assert (first.partitions, committed(first)) == ({"orders": 2}, {"readers": {FIRST: 5}})
    assert not second.missing_topics


def test_a_leader_that_has_moved_is_found_within_the_poll() -> None:
    leaders = {"orders": [1, 1]}
    with led_by(leaders, ENDS, ENDS, listed_offsets({FIRST: 11}, {SECOND: NOT_LEADER}), ENDS) as (broker, reader):
        reader.read()
        leaders["orders"] = [1, 2]
        before = len(broker.asked)
        moved = reader.read()
        asked = broker.asked[before:]

    assert (moved.end, moved.unanswered, moved.errors) == ({FIRST: 10, SECOND: 20}, {}, {})
    assert asked == ["DescribeGroups", "OffsetFetch", "ListOffsets", "Metadata", "ListOffsets", "ListOffsets"]


def test_a_topic_that_was_deleted_while_the_group_keeps_its_offsets_is_found_again() -> None:
    leaders = {"orders": [1, 1]}
    gone = listed_offsets({}, {FIRST: NO_SUCH_TOPIC, SECOND: NO_SUCH_TOPIC})
    with led_by(leaders, ENDS, ENDS, gone, ENDS) as (_, reader):
        reader.read()
        leaders.clear()
        deleted = [reader.read() for _ in range(2)]
        leaders["orders"] = [1]
        found = reader.read()

    assert [(each.end, each.partitions, each.unknown) for each in deleted] == [({}, {}, {FIRST})] * 2
    assert (found.end, found.partitions, found.unknown) == ({FIRST: 10}, {"orders": 1}, set())


def test_a_partition_without_a_leader_is_named_and_asked_for_until_it_has_one() -> None:
    leaders = {"orders": [1, -1]}
    with led_by(leaders) as (_, reader):
        without = [reader.read() for _ in range(2)]
        leaders["orders"] = [1, 1]
        with_one = reader.read()

    assert [(each.end, each.unanswered, each.errors) for each in without] == [
        ({FIRST: 10}, {SECOND: "LEADER_NOT_AVAILABLE"}, {})
    ] * 2
    assert without[0].failures() == {"offsets": "orders-1: LEADER_NOT_AVAILABLE"}
    assert (with_one.end, with_one.unanswered) == ({FIRST: 10, SECOND: 20}, {})


def test_a_topic_that_does_not_exist_is_missing_at_the_first_poll() -> None:
    with ScriptedBroker(Coordinator().script(), topics={"orders": 2}) as broker:
        reader = ClusterReader.of_group(plain(broker.address), "readers", ["orders", "gone"], "read_uncommitted", 10)
        with closing(reader):
            reading = reader.read()

    assert (reading.start, reading.end) == ({FIRST: 10, SECOND: 20}, {FIRST: 10, SECOND: 20})
    assert (reading.partitions, reading.unclear_topics, reading.unanswered) == ({"orders": 2}, set(), {})
    assert reading.missing_topics == ("gone",)


DENIED = [Group("billing", 1, error=GroupMissing("there is no group billing"))]


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def missing(clock: Clock) -> MissingGroups:
    return MissingGroups(clock=clock)


def listed_by(node: int) -> dict[str, ListedGroup]:
    return {"billing": ListedGroup("billing", "Empty", "classic", "consumer", node)}


def test_a_denied_group_is_gone_or_starts_over_if_it_is_listed_again(missing: MissingGroups, clock: Clock) -> None:
    missing.unclear(listed_by(1), [])

    assert missing.of({}) == ["billing"]
    assert missing.unclear({}, DENIED) == {}
    assert missing.of({}) == []

    missing.unclear(listed_by(999), [])
    missing.unclear({}, DENIED)
    missing.unclear(listed_by(999), [])
    clock.now += 31.0

    assert missing.unclear({}, DENIED) == {"billing": None}


@pytest.mark.shows("a master that starts during a failover does not report its group as dead")
@pytest.mark.parametrize("change", ["another broker", "some brokers listed it", "a new connection", "expected only"])
def test_one_that_may_exist_is_gone_after_half_a_minute(missing: MissingGroups, clock: Clock, change: str) -> None:
    """The coordinator that a master finds at its start may have just taken over."""
    if change == "another broker":
        missing.unclear(listed_by(999), [])
    elif change == "some brokers listed it":
        missing.remember(listed_by(999))
    elif change == "a new connection":
        missing.unclear(listed_by(1), [])
        missing.reconnect()
    else:
        missing.expect(["billing"])

    assert missing.unclear({}, DENIED) == {"billing": None}
    missing.reconnect()
    clock.now += 29.9
    assert missing.unclear({}, DENIED) == {"billing": None}
    clock.now += 0.2
    assert [missing.unclear({}, DENIED) for _ in range(2)] == [{}, {}], "and stays so"


def test_one_that_cannot_be_described_stays_with_its_error(missing: MissingGroups) -> None:
    missing.unclear(listed_by(1), [])
    error = NotAuthorised("GROUP_AUTHORIZATION_FAILED")

    assert missing.unclear({}, [Group("billing", 1, error=error)]) == {"billing": error}
    assert missing.of({}) == ["billing"]


LISTED = {"group_id": "billing", "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
OTHER = {**LISTED, "group_id": "other"}


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
def test_a_group_on_no_list_is_gone_only_when_its_coordinator_reports_that(code: int) -> None:
    """A moving coordinator lists no groups and reports no error, and a new one denies them for a moment."""
    both, one = Answers({"groups": [LISTED, OTHER]}), Answers({"groups": [OTHER]})
    script: dict[str, list[Step]] = {
        # the reader lists once, and again before a described group counts as missing.
        "ListGroups": [both, one, one, one, both, one, one],
        "DescribeGroups": [described(group("billing", code=code)), described(), described()],
        "OffsetFetch": [Answers({"groups": [{"group_id": name, "topics": []} for name in ("billing", "other")]})],
    }
    with (
        ScriptedBroker(script, topics={"orders": 1}) as broker,
        closing(ClusterReader(plain(broker.address), 10)) as reader,
    ):
        first = reader.read()
        moving = reader.read()
        denied = reader.read()
        back = reader.read()
        gone = reader.read()

    assert first.groups.keys() == {"billing", "other"}
    assert (set(moving.groups), moving.unclear) == ({"other"}, {"billing"})
    assert moving.errors.keys() == {"groups", "committed", "members"}
    assert (set(denied.groups), denied.unclear) == ({"other"}, {"billing"})
    assert not denied.errors
    assert back.groups.keys() == {"billing", "other"}
    assert (set(gone.groups), gone.unclear, gone.errors) == ({"other"}, set(), {})
    assert broker.asked.count("DescribeGroups") == 3
