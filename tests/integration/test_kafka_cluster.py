"""`kctl kafka`, masters and workers on a real cluster of three brokers, one of which is killed and returns."""

import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError

from kctl.errors import KctlError
from kctl.groups.known_groups import KnownGroups
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import topics_of
from kctl.kafka.lag import read_lag
from kctl.kafka.offsets import log_offsets
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl_agent.attached.brokers import ShadowGroup, log_bounds
from kctl_agent.worker.offsets.brokers import Bounds, Brokers, BrokerWatcher
from kctl_agent.worker.settings import KafkaSettings
from tests.command_lines import KCTL, Kctl, run_here
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_cluster import KafkaCluster, running_cluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
MESSAGES = 4000
BROKERS = 3
SINGLE = frozenset(TopicPartition("single", number) for number in range(2 * BROKERS))


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def kctl(cluster: KafkaCluster, capfd: pytest.CaptureFixture[str]) -> Kctl:
    return lambda command, *words: run_here(capfd, "kafka", command, "-b", cluster.bootstrap_servers, *words)


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int | None]:
    with ClusterConnection(plain(cluster.bootstrap_servers), 30) as connection:
        return {each.partition: each.leader for each in topics_of(connection.open([topic]))[topic].partitions}


@pytest.mark.shows("the lag of many partitions takes brokers + 2 requests")
def test_the_lag_of_many_partitions_is_asked_once_of_each_leader(cluster: KafkaCluster) -> None:
    topics.create_topic(cluster.bootstrap_servers, "spread", 60, replicas=1)
    topics.commit(cluster.bootstrap_servers, "readers", "spread", dict.fromkeys(range(60), 0))

    with ClusterConnection(plain(cluster.bootstrap_servers), 10) as connection:
        known = topics_of(connection.open(["spread"]))
        rows, problems = read_lag(connection, ["readers"], known)

    assert problems == []
    assert [row.lag for row in rows] == [0] * 60
    asked = connection.asked
    assert (asked["Metadata"], asked["OffsetFetch"], asked["ListOffsets"]) == (1, 1, BROKERS)


@dataclass
class Wounded:
    """A cluster one of whose brokers was killed while a file was produced into a topic that it led. The broker also led
    some partitions of `single`, which have no other replica, and coordinated two groups, one of them a shadow group."""

    victim: int
    lost: set[int]
    partition: int
    produced: tuple[int, str, str]
    text: str
    shadow: ShadowGroup
    brokers: Brokers  # a worker's clients, open since before the kill
    attached: Callable[..., Any]
    begun_after: list[ClusterReading]  # reports of a reader started after the kill, until it knew the offsets


@pytest.fixture(scope="module")
def wounded(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wounded]:
    servers = cluster.bootstrap_servers
    topics.create_topic(servers, "trades", BROKERS, {"min.insync.replicas": "2"}, replicas=BROKERS)
    topics.create_topic(servers, "single", 2 * BROKERS, replicas=1)
    topics.create_topic(servers, "strict", 1, {"min.insync.replicas": str(BROKERS)}, replicas=BROKERS)
    topics.commit(servers, "processes", "single", dict.fromkeys(range(2 * BROKERS), 0))
    victim = cluster.coordinator("processes")
    names = (f"shadow-{number}" for number in range(100))
    beside = next(name for name in names if cluster.coordinator(name) == victim)
    lost = {partition for partition, leader in leaders(cluster, "single").items() if leader == victim}
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5000)
    shadow = ShadowGroup(admin, beside)
    assert shadow.commit({("trades", 0): 1}) == {("trades", 0): 1}
    of_kafka = ("earliest", "range", 6.0, 1.0, "read_uncommitted", None)
    brokers = Brokers(KafkaSettings(servers, "processes", ("single",), *of_kafka), "worker-0")
    attached = partial(log_bounds, admin)
    assert brokers.found(SINGLE)[0].keys() == attached(SINGLE)[1].keys() == SINGLE
    partition = next(number for number, leader in leaders(cluster, "trades").items() if leader == victim)
    file = tmp_path_factory.mktemp("lines") / "lines"
    file.write_text("".join(f"{number}\n" for number in range(MESSAGES)))
    words = ["produce", "-b", cluster.bootstrap_servers, "-t", "trades", "-p", str(partition)]
    words += ["--file", str(file), "--rate", "1000"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*KCTL, "kafka", *words, "-o", "json"], stdout=pipe, stderr=pipe, text=True) as producing:
        eventually(lambda: end_of(cluster, "trades", partition) > 200, what="nothing is produced")
        cluster.brokers[victim].kill()
        begun_after = readings_until_committed(cluster)
        out, err = producing.communicate(timeout=90)
    yield Wounded(
        *(victim, lost, partition, (producing.returncode, out, err), file.read_text()),
        *(shadow, brokers, attached, begun_after),
    )
    admin.close()
    brokers.close()


def readings_until_committed(cluster: KafkaCluster) -> list[ClusterReading]:
    access, readings = plain(cluster.bootstrap_servers), list[ClusterReading]()
    reader = ClusterReader.of_group(access, "processes", ["single"], "read_uncommitted", 10)

    def is_known() -> bool:
        try:
            readings.append(reader.read())
        except KctlError:
            return False
        return None not in committed_of(readings[-1]).values() and bool(committed_of(readings[-1]))

    eventually(is_known, 60, "what the group has committed is not known")
    reader.close()
    return readings


def committed_of(reading: ClusterReading) -> dict[tuple[str, int], int | None]:
    known = KnownGroups(inf, "processes")
    known.add(reading, 1.0)
    rows = known.partitions(1.0, lambda _: False).rows()
    return {(row.topic, row.partition): row.current_offset for row in rows} if "processes" in reading.committed else {}


def end_of(cluster: KafkaCluster, topic: str, partition: int) -> int:
    with ClusterConnection(plain(cluster.bootstrap_servers), 10) as connection:
        known = topics_of(connection.open([topic]))
        return log_offsets(connection, known, [(topic, partition)])[topic, partition].offset or 0


@pytest.mark.shows("`kctl kafka produce` keeps order and stores each message once if the leader is killed")
def test_no_message_is_lost_or_twice_when_the_leader_is_killed_while_producing(wounded: Wounded, kctl: Kctl) -> None:
    code, out, err = wounded.produced

    assert (code, err) == (0, "")
    counted = {"messages": MESSAGES, "first_offset": 0, "last_offset": MESSAGES - 1}
    assert json.loads(out)["rows"] == [{"topic": "trades", "partition": wounded.partition, **counted}]
    assert kctl("consume", "-t", "trades")[1] == wounded.text


@pytest.mark.shows("a dead broker affects only its own rows; a killed coordinator is replaced without an error")
def test_a_killed_coordinator_or_broker_spoils_only_its_own_rows(wounded: Wounded, kctl: Kctl) -> None:
    code, out, err = kctl("lag", "-g", "processes", "-o", "json")
    described = kctl("group", "processes", "-o", "json")

    rows = json.loads(out)["rows"]
    assert wounded.lost
    assert {row["partition"] for row in rows if row["error"]} == wounded.lost
    assert {row["error"] for row in rows} == {None, "LEADER_NOT_AVAILABLE"}
    assert [row["lag"] for row in rows] == [None if number in wounded.lost else 0 for number in range(2 * BROKERS)]
    assert (code, f"{len(wounded.lost)} rows have an error" in err) == (3, True)
    [group] = json.loads(described[1])["groups"]
    assert (described[0], group["state"]) == (0, "Empty")
    assert group["coordinator"] in set(range(1, BROKERS + 1)) - {wounded.victim}


def test_a_shadow_group_goes_on_with_the_next_coordinator_when_its_own_was_killed(wounded: Wounded) -> None:
    def committed() -> dict[tuple[str, int], int] | None:
        try:
            return wounded.shadow.commit({("trades", 0): 2})
        except KafkaError:
            return None

    assert eventually(committed, 60, "nothing is committed any more") == {("trades", 0): 2}


def test_a_master_that_starts_right_after_a_failover_takes_no_group_for_dead(wounded: Wounded) -> None:
    *_, known = wounded.begun_after

    assert {each.groups["processes"].state for each in wounded.begun_after if each.groups} == {"Empty"}
    assert {offset for each in wounded.begun_after for offset in committed_of(each).values()} == {0}
    assert committed_of(known) == {("single", number): 0 for number in range(2 * BROKERS)}


def test_what_a_dead_broker_means_is_seen_in_topics_and_brokers(wounded: Wounded, kctl: Kctl) -> None:
    shown = {row["topic"]: row for row in json.loads(kctl("topics", "-o", "json")[1])["rows"]}
    code, out, _ = kctl("brokers", "-o", "json")
    one = json.loads(kctl("topic", "trades", "-o", "json")[1])["partitions"]

    assert (shown["trades"]["under_replicated"], shown["single"]["no_leader"]) == (BROKERS, len(wounded.lost))
    missing = [row for row in json.loads(out)["rows"] if row["error"]]
    assert (code, [row["node_id"] for row in missing]) == (3, [wounded.victim])
    assert (one[0]["under_replicated"], one[0]["offline"]) == (True, [wounded.victim])
    assert wounded.victim not in one[0]["isr"]


@pytest.mark.shows("too few replicas in sync are reported with the broker's error name")
def test_too_few_in_sync_replicas_are_reported(wounded: Wounded, kctl: Kctl, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # as a master does; another test may have run one in this process

    code, out, err = kctl("produce", "-t", "strict", "x", "--timeout", "8")

    assert (code, out) == (22, "")
    assert "topic strict: NOT_ENOUGH_REPLICAS" in err
    assert err.count("\n") == 1


def test_a_partition_without_leader_has_its_reason_and_others_are_read(wounded: Wounded, cluster: KafkaCluster) -> None:
    bad = {TopicPartition("single", number) for number in wounded.lost}
    brokers = wounded.brokers
    watcher = BrokerWatcher(brokers, lambda: SINGLE, every_seconds=0.2)
    watcher.start()
    try:

        def is_bad(bounds: Bounds) -> bool:
            return bounds.unanswered == dict.fromkeys(bad, "it has no leader") and bounds.starts.keys() == SINGLE - bad

        eventually(lambda: is_bad(brokers.bounds(SINGLE)), 60, "the others are answered for")
        answered, unanswered = eventually(lambda: found(brokers)[0] and found(brokers), 60, "the group is known")
        assert (answered.keys(), unanswered) == (SINGLE - bad, dict.fromkeys(bad, "it has no leader"))
        with pytest.raises(KafkaError):
            brokers.bounds(bad)
        eventually(lambda: [each.keys() for each in wounded.attached(SINGLE)] == [SINGLE - bad] * 2, 60, "attached too")
        eventually(lambda: watcher.view.unanswered_since.keys() == bad and watcher.view.ends.keys() == SINGLE - bad)

        cluster.start()
        eventually(lambda: found(brokers)[0].keys() == SINGLE, 60, "all are answered for again")
        eventually(lambda: not watcher.view.unanswered_since and watcher.view.ends.keys() == SINGLE)
    finally:
        watcher.stop()
        cluster.brokers[wounded.victim].kill()


def found(brokers: Brokers) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, str]]:
    try:
        return brokers.found(SINGLE)
    except KafkaError:
        return {}, {}
