"""While a cluster loses leaders, coordinator and controller, and its topic grows, is recreated and truncated, real
workers lose no acknowledged message, and failures that a retry heals are not reported as errors."""

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kafka import KafkaAdminClient

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import PartitionLayout, topics_of
from kctl_agent.worker.offsets.commit_metadata import log_seen, parse
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_cluster import KafkaCluster, running_cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PARTITIONS = 3
WORKERS = ("worker-0", "worker-1")
RATE = 300.0


class Scene:
    """A fleet under load. Each step returns when messages of every partition flow end to end again."""

    def __init__(self, cluster: KafkaCluster, make_fleet: MakeFleet) -> None:
        self.cluster = cluster
        self.fleet = make_fleet(workers=len(WORKERS), partitions=PARTITIONS, on=cluster)
        self.fleet.start(*WORKERS)
        self._load = self.fleet.load(RATE)
        self._await_flow()

    def kill_leader(self) -> None:
        leader = self._leaders()[0]
        assert leader is not None
        self._without(leader)

    def kill_coordinator(self) -> None:
        self._without(self.cluster.coordinator(self.fleet.group))

    def kill_controller(self) -> None:
        node = self.cluster.controller()
        eventually(lambda: self._reported_controllers() == [node], SETTLE_SECONDS, "the workers name the controller")
        self._without(node)

    def grow(self, partitions: int) -> None:
        self.fleet.finish(self._load)
        topics.add_partitions(self.fleet.broker.bootstrap_servers, self.fleet.topic, partitions)
        self.fleet.partitions = partitions
        self._load = self.fleet.load(RATE)
        self._await_flow()

    def make_again(self, replicas: Mapping[int, list[int]], **configs: str) -> None:
        """Deletes and recreates the topic with these replicas of each partition. No old message appears."""
        self.settle()
        self.fleet.partitions = len(replicas)
        self.fleet.sent.clear()
        topics.delete_topic(self.cluster.bootstrap_servers, self.fleet.topic)
        eventually(lambda: self._is_gone(), SETTLE_SECONDS, "the topic is gone from the answers")
        create(self.cluster, self.fleet.topic, replicas, **configs)
        eventually(lambda: None not in self._leaders().values(), SETTLE_SECONDS, "it has leaders")

    def settle(self) -> None:
        if self._load in self.fleet._loads:
            self.fleet.finish(self._load)
        eventually(self.fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")

    def errors(self) -> list[str]:
        """Errors in workers' answers and logs. On a busy machine, an engine may start slowly."""
        shown = [row["last_error"] for row in self.fleet.workers().values() if row["last_error"]]
        for name in WORKERS:
            log = (self.fleet.directory / "logs" / f"{name}.log").read_text()
            shown += [line for line in log.splitlines() if " ERROR " in line and "the engine is starting" not in line]
        return shown

    def kinds(self) -> set[str]:
        return {event["kind"] for event in self.fleet.events()}

    def restart(self) -> None:
        self.cluster.start()
        eventually(
            lambda: all(set(each.isr) == set(each.replicas) for each in self._partitions()),
            SETTLE_SECONDS,
            "all replicas are in sync",
        )

    def _without(self, node: int) -> None:
        self.cluster.brokers[node].kill()
        eventually(lambda: self._is_known_to_be_away(node), SETTLE_SECONDS, "the workers know the new leaders")
        self._await_flow()
        self.restart()
        self._await_flow()

    def _is_gone(self) -> bool:
        reported = self.fleet.ask("metadata_topics")
        return self.fleet.offsets() == {} and reported is not None and reported["rows"] == []

    def _reported_controllers(self) -> list[int]:
        rows = (self.fleet.ask("metadata_brokers") or {"rows": []})["rows"]
        return [row["node_id"] for row in rows if row["controller"]]

    def _is_known_to_be_away(self, node: int) -> bool:
        rows = (self.fleet.ask("metadata_topics") or {"rows": []})["rows"]
        return bool(rows) and all(row["leader_id"] not in (node, None) for row in rows)

    def _await_flow(self) -> None:
        """Waits until every partition has a new commit, and both workers have partitions."""
        eventually(lambda: len(self.fleet.offsets()) == self.fleet.partitions, SETTLE_SECONDS, "all are known")
        before = {p: row["current_offset"] or 0 for p, row in self.fleet.offsets().items()}

        def flows() -> bool:
            self.fleet.check()
            rows = self.fleet.offsets()
            return {row["worker"] for row in rows.values()} == set(WORKERS) and all(
                (row["current_offset"] or 0) > before.get(p, 0) for p, row in rows.items()
            )

        try:
            eventually(flows, SETTLE_SECONDS, "messages of every partition are stored and committed")
        except AssertionError:
            print(f"before: {before}, acknowledged: {self._load.acknowledged}, now: {self.fleet.offsets()}")
            raise

    def _leaders(self) -> dict[int, int | None]:
        return {each.partition: each.leader for each in self._partitions()}

    def _partitions(self) -> tuple[PartitionLayout, ...]:
        return layout(self.cluster, self.fleet.topic)


class UncleanElection:
    """Each partition of a topic has two replicas. The follower is away for a while, then leads alone."""

    REPLICAS: Mapping[int, list[int]] = {0: [1, 2], 1: [2, 1]}
    CONFIGS: Mapping[str, str] = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._follower, self._leader = self.REPLICAS[0]

    def part(self) -> None:
        self._cluster.brokers[self._follower].kill()
        eventually(
            lambda: {frozenset(each.isr) for each in self._partitions()} == {frozenset([self._leader])},
            SETTLE_SECONDS,
            "one is left",
        )

    def hold(self) -> None:
        self._cluster.brokers[self._leader].kill()
        self._cluster.brokers[self._follower].start()
        eventually(
            lambda: {each.leader for each in self._partitions()} == {self._follower}, SETTLE_SECONDS, "the other leads"
        )

    def _partitions(self) -> tuple[PartitionLayout, ...]:
        return layout(self._cluster, self._topic)


def create(cluster: KafkaCluster, topic: str, replicas: Mapping[int, list[int]], **configs: str) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(",")) as admin:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics({topic: {"assignments": replicas, "configs": settings}})


def layout(cluster: KafkaCluster, topic: str) -> tuple[PartitionLayout, ...]:
    with ClusterConnection(plain(cluster.bootstrap_servers), 30) as connection:
        found = topics_of(connection.open([topic])).get(topic)
        return found.partitions if found else ()


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster({"min.insync.replicas": "2"}) as running:
        yield running


@pytest.fixture
def scene(cluster: KafkaCluster, make_fleet: MakeFleet) -> Scene:
    return Scene(cluster, make_fleet)


def test_a_killed_broker_costs_no_message_shows_no_error_and_new_partitions_are_read(scene: Scene) -> None:
    scene.kill_coordinator()
    scene.kill_controller()
    scene.kill_leader()
    scene.grow(5)
    scene.settle()

    assert scene.fleet.stored_once() > 1000
    assert scene.errors() == []


def test_a_topic_that_is_recreated_and_then_truncated_is_read_on_and_both_are_reported(scene: Scene) -> None:
    fleet = scene.fleet
    scene.make_again(UncleanElection.REPLICAS, **UncleanElection.CONFIGS)
    fleet.send(20, b"of the second topic")
    seen: set[int] = set()

    def is_caught_up() -> bool:
        seen.update(
            offset
            for row in fleet.offsets().values()
            for offset in (row["current_offset"], row["kafka_max_offset"])
            if offset is not None
        )
        return fleet.is_caught_up()

    eventually(is_caught_up, SETTLE_SECONDS, "the second topic is read")
    assert max(seen) <= 10, "an offset of the first topic was shown"
    assert values(fleet).count(b"of the second topic") == 20
    assert "topic_recreated" in scene.kinds()

    election = UncleanElection(scene.cluster, fleet.topic)
    election.part()
    fleet.send(20, b"that only one broker has")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    election.hold()
    eventually(lambda: "truncated" in scene.kinds(), SETTLE_SECONDS, "the truncation is reported")
    for tp in fleet.sent:
        fleet.sent[tp] = 10
    fleet.send(30, b"after the truncation")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what came after is read")
    assert values(fleet).count(b"after the truncation") == 30
    assert values(fleet).count(b"that only one broker has") == 20
    scene.restart()


def test_a_log_truncated_and_grown_again_is_read(cluster: KafkaCluster, make_fleet: MakeFleet) -> None:
    """Meanwhile the log end is not polled: the next, paused worker knows only the group's committed offsets."""
    fleet = make_fleet(workers=1, partitions=2, on=cluster)
    place(fleet, cluster, UncleanElection.REPLICAS, **UncleanElection.CONFIGS)
    fleet.start("worker-0")
    fleet.send(20, b"that both brokers have")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    election = UncleanElection(cluster, fleet.topic)
    election.part()
    fleet.send(20, b"that only one broker has")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    eventually(lambda: noted(fleet) == {20}, SETTLE_SECONDS, "the end of the log is noted")
    fleet.kctl("pause", "--topic", fleet.topic)
    first = fleet.workers()["worker-0"]["pid"]
    os.kill(first, signal.SIGKILL)

    def is_next_paused() -> bool:
        return {(row["pid"] == first, row["state"]) for row in fleet.workers().values()} == {(False, "paused")}

    eventually(is_next_paused, START_SECONDS, "another worker is paused")

    election.hold()
    for tp in fleet.sent:
        fleet.sent[tp] = 10
    fleet.send(30, b"after the truncation")
    fleet.kctl("resume", "--topic", fleet.topic)

    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what came after is read")
    eventually(lambda: values(fleet).count(b"after the truncation") >= 30, SETTLE_SECONDS, "every record is stored")
    assert values(fleet).count(b"after the truncation") == 30
    assert values(fleet).count(b"that only one broker has") == 20
    reported = {
        (event["partition"], event["from"], event["to"]) for event in fleet.events() if event["kind"] == "truncated"
    }
    assert reported == {(0, 20, 10), (1, 20, 10)}


def place(fleet: Fleet, cluster: KafkaCluster, replicas: Mapping[int, list[int]], **configs: str) -> None:
    topics.delete_topic(cluster.bootstrap_servers, fleet.topic)
    eventually(lambda: layout(cluster, fleet.topic) == (), SETTLE_SECONDS, "the topic is gone")
    create(cluster, fleet.topic, replicas, **configs)


@pytest.mark.shows("a partition without a leader does not stop the others, and is read again when its leader returns")
def test_a_partition_without_a_leader_holds_up_no_other(cluster: KafkaCluster, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=3, on=cluster)
    place(fleet, cluster, {0: [1], 1: [2], 2: [3]}, min_insync_replicas="1")
    fleet.start("worker-0")
    fleet.send(300)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")

    cluster.brokers[1].kill()
    fleet.send_to(1, 2, count=100)
    eventually(lambda: fleet.has_committed(1, 2), 120, "the others are stored and committed")
    row = eventually(lambda: left_out(fleet), SETTLE_SECONDS, "it is reported")
    assert row["left_out"] == [{"topic": fleet.topic, "partition": 0, "why": "it has no leader", "offset": None}]
    assert row["last_error"] == f"{fleet.topic}-0 is not read: it has no leader"
    assert [each["partition"] for each in row["events"] if each["kind"] == "partition_left_out"] == [0]
    fleet.send_to(1, 2, count=100)
    eventually(lambda: fleet.has_committed(1, 2), SETTLE_SECONDS, "they go on being read")

    cluster.start()
    fleet.send_to(0, count=100)
    eventually(fleet.is_caught_up, 120, "it is read again")
    eventually(lambda: fleet.workers()["worker-0"]["left_out"] == [], SETTLE_SECONDS, "nothing is left out")
    fleet.stored_once()


def left_out(fleet: Fleet) -> dict[str, Any] | None:
    row = fleet.workers().get("worker-0", {})
    return row if row.get("left_out") else None


def noted(fleet: Fleet) -> set[int | None]:
    """Returns the known log end, which is committed with the offsets."""
    with KafkaAdminClient(bootstrap_servers=fleet.broker.bootstrap_servers.split(",")) as admin:
        offsets = admin.list_group_offsets({fleet.group: None})[fleet.group]
    known = [log_seen(parse(at.metadata), at.offset, at.leader_epoch) for at in offsets.values()]
    return {seen.end if seen else None for seen in known}


def values(fleet: Fleet) -> list[bytes | None]:
    return [record.value for block in fleet.storage.blocks() for record in block.messages()]
