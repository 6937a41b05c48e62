"""Five hosts in network namespaces: cut off from Kafka or from each other, or without a coordinator."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import eventually, on_this_machine
from tests.integration.conftest import TOPIC, Master
from tests.integration.hosts import MISSED_WITHIN, Fleet
from tests.servers.kafka_cluster import KafkaCluster, running_cluster
from tests.servers.topics import create_topic

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root")]

PORTS = {"a": 9701, "b": 9702, "c": 9703, "d": 9704, "e": 9705}


class Network:
    """A namespace for each host. Gateways, which can be cut, connect the hosts with each other and the brokers."""

    def __init__(self, folder: Path, cluster: KafkaCluster) -> None:
        self.folder = folder
        self._gateways = {"kafka": self._gateway("kafka")}
        for name in PORTS:
            others = [f"{port}={other}" for other, port in PORTS.items() if other != name]
            self._gateways[name] = self._gateway(
                name, *(f"{port}=kafka" for port, _ in cluster.ports.values()), *others
            )

    def enter(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._gateways[name].pid}/ns/net"]

    def cut(self, name: str, *others: str) -> None:
        """Cuts this host off from the others. Without any, restores all its ways."""
        written = self.folder / f"{name}.new"
        written.write_text(" ".join(others))
        written.rename(self.folder / f"{name}.cut")

    def close(self) -> None:
        for each in self._gateways.values():
            each.kill()
            each.wait()

    def _gateway(self, name: str, *routes: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.gateway", str(self.folder), name, *routes]
        if name != "kafka":
            command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "-", *command]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as output:
            assert output.readline() == b"ready\n"
        return process


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster() as running:
        create_topic(running.bootstrap_servers, TOPIC, len(PORTS))
        yield running


@pytest.fixture
def network(short_dir: Path, cluster: KafkaCluster) -> Iterator[Network]:
    made = Network(short_dir, cluster)
    yield made
    made.close()


@pytest.fixture
def fleet(short_dir: Path, cluster: KafkaCluster, network: Network) -> Iterator[Fleet]:
    with closing(Fleet(short_dir, cluster)) as made:
        for number, (name, port) in enumerate(PORTS.items()):
            prefix = [*network.enter(name), "env", f"KCTL_TEST_FIRST_PARTITION={number}"]
            made.start(name, port=port, prefix=prefix)
        made.await_all(*PORTS)
        yield made


def others_than(*names: str) -> list[str]:
    return [each for each in PORTS if each not in names]


def await_missed(fleet: Fleet, missing: str, since: float) -> None:
    """Waits until all others report it missing, which takes at most 8 s. Its rows are then old."""
    names = others_than(missing)
    eventually(lambda: all(fleet.misses(name, missing) for name in names), what=f"not all miss {missing}")
    assert time.monotonic() - since < on_this_machine(MISSED_WITHIN + 1.0)  # all are asked, one after another


def assert_old(fleet: Fleet, at: str, missing: str, least_seconds: float) -> None:
    reply = fleet.masters[at].ask("workers")
    assert not reply.complete
    for row in reply.result["rows"]:
        age = row["age_seconds"]
        if row["name"].startswith(f"{missing}/"):
            assert age is None or age >= least_seconds, row
        else:
            assert age < 3.0, row


def failures(master: Master) -> dict[str, str]:
    return {str(each.sender): each.message for each in master.ask("workers").failed if "/" not in str(each.sender)}


@pytest.mark.shows("a host cut off from Kafka, other hosts or both is reported, and recovers")
def test_a_host_that_is_cut_off_is_named_for_what_it_is(fleet: Fleet, network: Network, cluster: KafkaCluster) -> None:
    a, c = fleet.masters["a"], fleet.masters["c"]
    everybody, others = [f"{name}/worker-0" for name in PORTS], others_than("c")
    for name in PORTS:
        assert fleet.names(name) == everybody
        rows = fleet.masters[name].ask("offset_checker").result["rows"]
        assert [row["worker"] for row in rows] == everybody

    network.cut("c", "kafka")
    await_missed(fleet, "c", time.monotonic())
    assert "but answers: it may be cut off from Kafka" in failures(a)["c"]
    assert fleet.names("a") == everybody
    eventually(lambda: "the coordinator of their group is silent" in failures(c).get("hosts", ""), what="c is sure")
    assert fleet.names("c") == everybody
    network.cut("c")
    fleet.await_all(*PORTS)

    for name in others:
        network.cut(name, "c")
    network.cut("c", *others)
    cut_at = time.monotonic()
    assert "no answer in time" in failures(a)["c"]
    assert set(failures(c)) == set(others)
    time_in_group = time.monotonic() + MISSED_WITHIN
    eventually(lambda: time.monotonic() > time_in_group, what="the session of c would have ended")
    assert_old(fleet, "a", "c", time.monotonic() - cut_at - 2.0)
    assert fleet.states("a")["c"] == "silent"

    network.cut("c", *others, "kafka")
    await_missed(fleet, "c", time.monotonic())
    assert "has not answered since" in failures(a)["c"]
    eventually(lambda: set(failures(c)) == {*others, "hosts"}, what="c does not doubt")
    for name in PORTS:
        network.cut(name)
    fleet.await_all(*PORTS)

    network.cut("a", "c")
    assert set(failures(a)) == {"c"}
    assert failures(c) == failures(fleet.masters["b"]) == {}
    network.cut("a")
    fleet.await_all(*PORTS)

    cluster.brokers[cluster.coordinator(fleet.masters_group)].kill()
    fleet.await_all(*PORTS)
    assert all(set(fleet.states(name).values()) == {"here", "present"} for name in PORTS)
    cluster.start()
    fleet.await_all(*PORTS)
