"""Real workers on a real cluster of three brokers, under one fault after another."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import KafkaAdminClient

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import PartitionLayout, quorum_leader, topics_of
from tests.acceptance.fleets import SETTLE_SECONDS, MakeFleet
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_cluster import KafkaCluster

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
        with ClusterConnection(plain(self.cluster.bootstrap_servers), 30) as connection:
            connection.open()
            node = connection.coordinators([self.fleet.group])[self.fleet.group]
        assert isinstance(node, int)
        self._without(node)

    def kill_controller(self) -> None:
        with ClusterConnection(plain(self.cluster.bootstrap_servers), 30) as connection:
            connection.open()
            node = quorum_leader(connection)
        assert node is not None
        eventually(lambda: self._reported_controllers() == [node], SETTLE_SECONDS, "the workers name the controller")
        self._without(node)

    def grow(self, partitions: int) -> None:
        self.fleet.finish(self._load)
        topics.add_partitions(self.fleet.broker.bootstrap_servers, self.fleet.topic, partitions)
        self.fleet.partitions = partitions
        self._load = self.fleet.load(RATE)
        self._await_flow()

    def make_again(self, replicas: Mapping[int, list[int]], **configs: str) -> None:
        """Deletes and recreates the topic with these replicas of each partition; no old message appears."""
        self.settle()
        self.fleet.partitions = len(replicas)
        self.fleet.sent.clear()
        topics.delete_topic(self.cluster.bootstrap_servers, self.fleet.topic)
        eventually(lambda: self._is_gone(), SETTLE_SECONDS, "the topic is gone from the answers")
        create(self.cluster, self.fleet.topic, replicas, **configs)
        eventually(lambda: None not in self._leaders().values(), SETTLE_SECONDS, "it has leaders")

    def settle(self) -> None:
        """Stops the load and waits until every message is stored and committed."""
        if self._load in self.fleet._loads:
            self.fleet.finish(self._load)
        eventually(self.fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")

    def errors(self) -> list[str]:
        """Errors in workers' answers and logs, except that an engine starts slowly, as on a busy machine."""
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
        """Waits until every partition has a new commit, and both workers have a part in it."""
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
    """Each partition of a topic has two replicas; the follower is away for a while, then leads alone."""

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
    """Takes the replicas of each partition, and settings with underscores in their names."""
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(",")) as admin:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics({topic: {"assignments": replicas, "configs": settings}})


def layout(cluster: KafkaCluster, topic: str) -> tuple[PartitionLayout, ...]:
    """As the first broker that answers reports it; empty for a topic that does not exist."""
    with ClusterConnection(plain(cluster.bootstrap_servers), 30) as connection:
        found = topics_of(connection.open([topic])).get(topic)
        return found.partitions if found else ()
