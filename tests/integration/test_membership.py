"""Members of a real consumer group without Spark: assignors, leaders, static members, and another client."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.commit_metadata import LogSeen
from tests.conftest import eventually
from tests.integration.members import ConsumerGroup, Member, is_shared
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

TOPICS = (7, 4)
MOST_MEMBERS = 5
STRATEGIES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
Shares = Mapping[str, frozenset[TopicPartition]]


@pytest.fixture
def group(broker: KafkaBroker) -> Iterator[ConsumerGroup]:
    made = ConsumerGroup(broker, *TOPICS)
    yield made
    made.close()


def by_range(ids: list[str], partitions: frozenset[TopicPartition]) -> Shares:
    """Kafka's RangeAssignor, as documented. Each member gets a run of neighbours of each topic, the first members one
    more."""
    shares: dict[str, set[TopicPartition]] = {each: set() for each in ids}
    for topic in {tp.topic for tp in partitions}:
        own = sorted(tp for tp in partitions if tp.topic == topic)
        each, more = divmod(len(own), len(ids))
        for place, member in enumerate(sorted(ids)):
            begin = place * each + min(place, more)
            shares[member] |= set(own[begin : begin + each + (place < more)])
    return {member: frozenset(share) for member, share in shares.items()}


def by_turns(ids: list[str], partitions: frozenset[TopicPartition]) -> Shares:
    """Kafka's RoundRobinAssignor. It deals out all partitions of all topics one by one."""
    dealt, members = sorted(partitions), sorted(ids)
    return {member: frozenset(dealt[place :: len(members)]) for place, member in enumerate(members)}


def sizes(shares: Shares) -> list[int]:
    return sorted(len(share) for share in shares.values())


def as_even_as_can_be(count: int, members: int) -> list[int]:
    return sorted(count // members + (place < count % members) for place in range(members))


def shares_as_promised(assignor: str, members: list[Member], group: ConsumerGroup) -> Shares | None:
    now = {member.member_id: member.partitions for member in members}
    if assignor in ("range", "roundrobin"):
        plan = by_range if assignor == "range" else by_turns
        fits = now == plan(list(now), group.partitions)
    else:
        fits = sizes(now) == as_even_as_can_be(len(group.partitions), len(members))
    return now if fits and is_shared(members, group.partitions) else None


@pytest.mark.shows("four assignors with one to five members are balanced, sticky ones move least, one leader")
@pytest.mark.parametrize(
    "assignor",
    ["range", "cooperative-sticky", *(pytest.param(each, marks=pytest.mark.long) for each in ("roundrobin", "sticky"))],
)
def test_one_to_five_members_share_two_topics_as_the_assignor_promises(assignor: str, group: ConsumerGroup) -> None:
    members: list[Member] = []
    before: Shares = {}
    while len(members) < MOST_MEMBERS:
        members.append(group.join(f"member-{len(members)}", assignor))
        now = eventually(lambda: shares_as_promised(assignor, members, group), 60, f"{len(members)} share it all")
        if "sticky" in assignor:
            # Partitions moved only to the new member.
            assert all(now[each] <= share for each, share in before.items())
        before = now

    leaves = members.pop(1)
    leaves.close()
    after = eventually(lambda: shares_as_promised(assignor, members, group), 60, "the others share what was left")
    if "sticky" in assignor:
        assert all(before[each] <= share for each, share in after.items()), "something moved between the others"


@pytest.mark.shows("each assignor works with Kafka's own consumer in one group, whichever member leads")
@pytest.mark.parametrize(
    "assignor",
    ["cooperative-sticky", *(pytest.param(each, marks=pytest.mark.long) for each in ("range", "roundrobin", "sticky"))],
)
def test_kafkas_own_consumer_shares_the_group_whichever_leads(assignor: str, group: ConsumerGroup) -> None:
    """The member that joins first leads, and the other reads what it has written."""
    first = group.join("first", assignor)
    eventually(lambda: is_shared([first], group.partitions), 60, "ours has everything")
    group.join_console_consumer(STRATEGIES[assignor])

    def is_even() -> bool:
        ours = [member for member in (first, *later) if member.partitions]
        shares = group.shares()
        return (
            sorted(tp for share in shares.values() for tp in share) == sorted(group.partitions)
            and len(shares) == 2
            and sizes(shares) in ([5, 6], *([[4, 7]] if assignor == "range" else []))
            and all(shares.get(member.member_id) == member.partitions for member in ours)
        )

    later: list[Member] = []
    eventually(is_even, 60, f"the console consumer has its half of {group.partitions}")
    eventually(lambda: first.membership.info.leader == first.member_id, 60, "the first leads")

    first.close()
    eventually(lambda: sizes(group.shares()) == [len(group.partitions)], 60, "the console consumer has everything")
    later.append(group.join("later", assignor))
    eventually(lambda: is_even() and later[0].partitions, 60, "the newcomer has its half")
    assert later[0].membership.info.leader is None, "a leader of another client reports nothing of itself"


def test_a_leader_of_another_epoch_or_too_old_to_be_asked_reports_no_truncation(group: ConsumerGroup) -> None:
    tp = min(group.partitions)
    with closing(Brokers(group.settings(), "worker-0")) as brokers:
        bounds = brokers.bounds([tp])
        assert bounds.logs == {tp: LogSeen(0, bounds.ends[tp])}
        assert brokers.divergences({tp: LogSeen(0, 99)}, bounds.logs) == {}, "the same leader is not asked"

        with pytest.raises(KafkaError) as refused:
            brokers.divergences({tp: LogSeen(0, 99)}, {tp: LogSeen(5, 99)})
        assert refused.value.retriable

        del brokers._admin._manager.broker_version_data.api_versions[OffsetForLeaderEpochRequest.API_KEY]
        assert brokers.divergences({tp: LogSeen(0, 99)}, {tp: LogSeen(5, 99)}) == {}


@pytest.mark.shows("a static member that restarts within its session causes no rebalance")
@pytest.mark.parametrize("which", [0, 1], ids=["leader", "other"])
def test_a_static_member_that_restarts_causes_no_rebalance(group: ConsumerGroup, which: int) -> None:
    members = [group.join("a", instance="one")]
    eventually(lambda: is_shared(members, group.partitions), 60, "the first leads")
    members.append(group.join("b", instance="two"))
    eventually(lambda: is_shared(members, group.partitions), 60, "both have joined")
    assert members[0].membership.info.is_leader
    restarts, stays = members[which], members[1 - which]
    generation, revocations, share = stays.membership.info.generation, stays.revocations, restarts.partitions

    restarts.close()
    again = group.join("ab"[which], instance=("one", "two")[which])

    eventually(lambda: again.partitions == share, 60, "it has its partitions again")
    assert stays.membership.info.generation == generation
    assert stays.revocations == revocations
    assert again.membership.info.is_leader is (which == 0)

    group.grow()
    eventually(lambda: is_shared([again, stays], group.partitions), 60, "new partitions have a reader too")
    assert again.fenced is stays.fenced is None, "no rebalance is taken for fencing"


def test_partitions_that_are_new_when_a_static_leader_is_back_have_a_reader(group: ConsumerGroup) -> None:
    leads = group.join("a", instance="one")
    eventually(lambda: is_shared([leads], group.partitions), 60, "it leads")

    leads.close()
    group.grow()
    again = group.join("a", instance="one")

    eventually(lambda: is_shared([again], group.partitions), 60, "all have a reader")
