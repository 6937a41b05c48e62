"""`kctl exporter` shows each kind of group as Kafka's own tools do, in each awkward state, on a real broker."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pytest
from kafka import KafkaAdminClient

from tests.conftest import eventually
from tests.consumers import member
from tests.exporters import Exporter, running_exporter
from tests.group_members import alter_share_offsets, consumer_member, share_member, streams_member
from tests.servers import kafka_tools, topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_tools import Kind

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
Values = dict[int, float]


KINDS: Mapping[str, Callable[[str, str, str], AbstractContextManager[object]]] = {
    "classic": member,
    "consumer": consumer_member,
    "share": share_member,
    "streams": streams_member,
}


@dataclass(frozen=True)
class World:
    servers: str
    exporter: Exporter
    kind: str
    topic: str
    group: str

    def member(self) -> AbstractContextManager[object]:
        return KINDS[self.kind](self.servers, self.group, self.topic)

    def produce(self, counts: Mapping[int, int]) -> None:
        topics.produce(self.servers, self.topic, counts)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commits as the group's clients would. For a share group, it sets the start offset."""
        if self.kind == "share":
            alter_share_offsets(self.servers, self.group, self.topic, offsets)
        else:
            topics.commit(self.servers, self.group, self.topic, offsets)

    def has(self, name: str, wanted: Values) -> None:
        eventually(lambda: self.of(name) == wanted, what=f"{name} is {wanted}")

    def of(self, name: str) -> Values:
        found = self.exporter.samples().of(name, "partition", group=self.group, topic=self.topic)
        return {int(partition): value for (partition,), value in found.items()}

    def word(self, name: str, label: str) -> str | None:
        found = self.exporter.samples().of(name, label, group=self.group)
        return next((word for (word,), value in found.items() if value == 1), None)


@pytest.fixture(scope="module")
def exporter(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    words = ("-b", broker.bootstrap_servers, "--set", "exporter.interval_seconds=0.2")
    topics.commit(broker.bootstrap_servers, "first", "orders", {0: 0})  # from now on there is a coordinator
    with running_exporter(tmp_path_factory.mktemp("exporter"), *words) as running:
        eventually(running.is_ready, what="it is polled")
        yield running


@pytest.fixture
def world(broker: KafkaBroker, exporter: Exporter, request: pytest.FixtureRequest, kind: str) -> World:
    """The group has had a member, which gives it its kind."""
    name = f"{kind}-{abs(hash(request.node.name)) % 10**8}"
    topics.create_topic(broker.bootstrap_servers, name, 6)
    made = World(broker.bootstrap_servers, exporter, kind, name, f"of-{name}")
    with made.member():
        pass
    return made


@pytest.mark.shows("KIP-848, share and streams groups are shown in every state")
@pytest.mark.shows("an offset above the end is lag 0 and `ahead`; below the start it is lag and lost messages")
@pytest.mark.shows("added partitions and deleted or recreated topics and groups are right in the next cycle")
@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_every_kind_are_shown_in_every_state_and_as_their_parts_come_and_go(world: World, kind: str) -> None:
    # By partition: behind, at the end, an empty log, without a committed offset, above the end, below the start.
    lag = {0: 3.0, 1: 0.0, 2: 0.0, 4: 0.0, 5: 8.0}
    world.produce({0: 5, 1: 5, 3: 5, 4: 3, 5: 10})
    world.commit({0: 2, 1: 5, 2: 0, 4: 10, 5: 2})
    topics.delete_records(world.servers, world.topic, {5: 6})

    world.has("kctl_consumer_lag", lag)
    # What members of a share group have done after its start only its coordinator knows.
    world.has("kctl_consumer_lost_messages", {} if kind == "share" else {5: 4})
    assert world.of("kctl_consumer_ahead") == {4: 7}
    assert world.of("kctl_consumer_committed_offset") == {0: 2, 1: 5, 2: 0, 4: 10, 5: 2}
    assert world.word("kctl_group_info", "type") == kind

    def members() -> dict[tuple[str, ...], float]:
        return world.exporter.samples().of("kctl_group_members", group=world.group)

    with world.member():
        eventually(lambda: members() == {(): 1}, what="it has a member")
        assert world.word("kctl_group_state", "state") not in {"empty", "dead", None}
        world.has("kctl_consumer_lag", lag)
    eventually(lambda: (members(), world.word("kctl_group_state", "state")) == ({(): 0}, "empty"), what="it has none")
    world.has("kctl_consumer_lag", lag)

    topics.add_partitions(world.servers, world.topic, 7)
    world.produce({6: 5})
    world.commit({6: 1})
    world.has("kctl_consumer_lag", lag | {6: 4})

    topics.delete_topic(world.servers, world.topic)
    world.has("kctl_consumer_lag", {})
    topics.create_topic(world.servers, world.topic, 1)
    world.produce({0: 3})
    world.commit({0: 1})
    world.has("kctl_consumer_lag", {0: 2})
    assert world.of("kctl_consumer_committed_offset") == {0: 1}

    with KafkaAdminClient(bootstrap_servers=world.servers) as admin:
        admin.delete_groups([world.group])
    eventually(lambda: f'group="{world.group}"' not in world.exporter.samples().page, what="its series end")


JOINED: Mapping[Kind, Callable[[str, str, str], AbstractContextManager[object]]] = {
    "classic": member,
    "share": partial(share_member, is_assigned=True),
    "streams": partial(streams_member, is_assigned=True),
}


@pytest.mark.shows("offsets, lag, state and members of each kind of group match Kafka's own tools")
@pytest.mark.parametrize("kind", JOINED)
def test_groups_are_as_kafkas_tools_report_them(world: World, kind: Kind) -> None:
    """Of six partitions one has lag, one is at the end, and four have no commit. One member has all of them."""
    world.produce({0: 5, 1: 5, 2: 5})
    world.commit({0: 2, 1: 5})

    with JOINED[kind](world.servers, world.group, world.topic):
        world.has("kctl_consumer_lag", {0: 3, 1: 0})
        eventually(lambda: world.word("kctl_group_state", "state") == "stable", what="it has joined")
        reported = kafka_tools.describe_all(world.servers, kind, world.group)
        [ours] = json.loads(world.exporter.get(f"/api/v1/groups/{world.group}")[1])["members"]
        samples = world.exporter.samples()
    [of_tool] = reported.members

    columns = {"kctl_consumer_committed_offset": "current_offset", "kctl_consumer_lag": "lag"}
    if kind != "share":  # whose tool prints no log ends
        columns["kctl_partition_end_offset"] = "log_end_offset"
    for name, column in columns.items():
        found = {row.partition: getattr(row, column) for row in reported.partitions if row.current_offset is not None}
        assert samples.of(name, "topic", "partition", group=world.group) == {
            (world.topic, str(partition)): value for partition, value in found.items()
        }
    for name in ("kctl_group_lag", "kctl_topic_lag"):
        assert samples.of(name, group=world.group) == {(): 3}
    assert set(samples.of("kctl_partition_start_offset", "partition", group=world.group).values()) == {0}
    assert (world.word("kctl_group_state", "state"), reported.state.state) == ("stable", "Stable")
    assert samples.of("kctl_group_members", group=world.group) == {(): reported.state.members} == {(): 1}
    assert samples.of("kctl_group_info", "type", "coordinator", group=world.group) == {
        (kind, str(reported.state.coordinator_id)): 1
    }
    [age] = samples.of("kctl_group_stats_age_seconds", group=world.group).values()
    assert 0 <= age < 5
    assert (ours["member_id"], ours["client_id"]) == (of_tool.consumer_id, of_tool.client_id)
    assert kind != "classic" or ours["lag"] == 3
    if kind == "streams":  # members have tasks, not partitions of topics
        assert of_tool.assignment == tuple(("0", number) for number in range(6))
        assert ours["assigned"] is None
    else:
        assert of_tool.assignment == tuple((world.topic, number) for number in ours["assigned"][world.topic])
        assert of_tool.host == f"/{ours['host']}".replace("//", "/")
