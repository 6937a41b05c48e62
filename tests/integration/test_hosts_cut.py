"""Hosts in network namespaces of their own, cut off from Kafka, from the others, from both, and one way only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.integration.conftest import Master
from tests.integration.hosts import MISSED_WITHIN, Fleet
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
]

PORTS = {"a": 9701, "b": 9702, "c": 9703}


class Network:
    """A namespace for each host; their ways to each other and to the broker are gateways, which can be cut."""

    def __init__(self, folder: Path, broker_port: int) -> None:
        self.folder = folder
        self._gateways = {"kafka": self._gateway("kafka")}
        for name in PORTS:
            others = [f"{port}={other}" for other, port in PORTS.items() if other != name]
            self._gateways[name] = self._gateway(name, f"{broker_port}=kafka", *others)

    def enter(self, name: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._gateways[name].pid}/ns/net"]

    def cut(self, name: str, *others: str) -> None:
        """Nothing goes from this host to those; without any, all goes through."""
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
def network(short_dir: Path, broker: KafkaBroker) -> Iterator[Network]:
    made = Network(short_dir, int(broker.bootstrap_servers.rpartition(":")[2]))
    yield made
    made.close()


@pytest.fixture
def fleet(short_dir: Path, broker: KafkaBroker, network: Network) -> Iterator[Fleet]:
    made = Fleet(short_dir, broker)
    for name, port in PORTS.items():
        made.start(name, port=port, prefix=network.enter(name))
    yield made
    made.end()


def failures(master: Master) -> dict[str, str]:
    """Hosts that are missed, and why."""
    return {str(each.sender): each.message for each in master.ask("workers").failed if "/" not in str(each.sender)}


@pytest.mark.shows("a host cut off from Kafka, others or both is named so, and healed")
def test_a_host_that_is_cut_off_is_named_for_what_it_is(fleet: Fleet, network: Network) -> None:
    a, c = fleet.masters["a"], fleet.masters["c"]
    everybody = ["a/worker-0", "b/worker-0", "c/worker-0"]
    fleet.await_all(*PORTS)

    network.cut("c", "kafka")
    started = time.monotonic()
    for name in ("a", "b"):
        eventually(partial(fleet.misses, name, "c"), what=f"{name} does not miss c")
    assert time.monotonic() - started < MISSED_WITHIN + 1.0  # two are asked, one after another
    assert "but answers: it may be cut off from Kafka" in failures(a)["c"]
    assert fleet.names("a") == everybody
    eventually(lambda: "the coordinator of their group is silent" in failures(c).get("hosts", ""), what="c is sure")
    assert fleet.names("c") == everybody
    network.cut("c")
    fleet.await_all(*PORTS)

    for name, others in (("a", "c"), ("b", "c"), ("c", "a b")):
        network.cut(name, *others.split())
    assert "no answer in time" in failures(a)["c"]
    assert set(failures(c)) == {"a", "b"}
    rows = {row["name"]: row["age_seconds"] for row in a.ask("workers").result["rows"]}
    assert rows["c/worker-0"] > rows["b/worker-0"]
    time_in_group = time.monotonic() + MISSED_WITHIN
    eventually(lambda: time.monotonic() > time_in_group, what="the session of c would have ended")
    assert fleet.states("a")["c"] == "silent"

    network.cut("c", "a", "b", "kafka")
    eventually(partial(fleet.misses, "a", "c"), what="a does not miss c")
    assert "has not answered since" in failures(a)["c"]
    eventually(lambda: set(failures(c)) == {"a", "b", "hosts"}, what="c does not doubt")
    for name in PORTS:
        network.cut(name)
    fleet.await_all(*PORTS)

    network.cut("a", "c")
    assert set(failures(a)) == {"c"}
    assert failures(c) == failures(fleet.masters["b"]) == {}
    network.cut("a")
    fleet.await_all(*PORTS)
