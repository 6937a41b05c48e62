"""Any of several hosts shows one fleet of Spark workers, and the loss of a host loses no message."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.errors import KctlError
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.rpc.client import call
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import Request, Role, wire_method
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet
from tests.acceptance.tables import places, sent
from tests.certificates import make_certificate
from tests.clusters import running_cluster
from tests.conftest import eventually, on_this_machine
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.redis_server import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PARTITIONS = 8
MISSED_WITHIN = 8.0
WINDOW_SECONDS = 12.0
HOSTS = """\
tls_certificate = "{folder}/server.pem"
read_token_file = "{folder}/read-token"

[hosts]
name = "{name}"
url = "https://127.0.0.1"
ca_file = "{folder}/cert.pem"
token_file = "{folder}/read-token"
"""


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster({}) as running:
        yield running


def answer(fleet: Fleet, command: str) -> dict[str, Any]:
    """Empty while its master does not answer."""
    document: dict[str, Any] = json.loads(fleet.kctl(command, "-o", "json", exit_code=None).stdout or "{}")
    return document


class Hosts:
    """Workers on a and b, none on c."""

    def __init__(
        self, make: Callable[..., Fleet], folder: Path, on: KafkaBroker | KafkaCluster, storage: str, **settings: str
    ) -> None:
        make_certificate(folder)
        token = folder / "read-token"
        token.touch(0o600)
        token.write_text("a-token-that-may-only-read\n")
        self.fleets: dict[str, Fleet] = {}
        for name, workers in (("a", 2), ("b", 2), ("c", 0)):
            http = HOSTS.format(folder=folder, name=name) + settings.get("sections", "")
            beside = self.fleets.get("a")
            more: dict[str, Any] = {"http": http, "storage": storage, "beside": beside}
            more["workers_more"] = settings.get("workers_more", "")
            self.fleets[name] = make(partitions=PARTITIONS, workers=workers, on=on, **more)

    def start(self) -> None:
        for fleet in self.fleets.values():
            fleet.start()

    def shows_all(self) -> bool:
        """Whether each host shows all workers, running, and each of these has partitions."""
        everybody = {"a/worker-0", "a/worker-1", "b/worker-0", "b/worker-1"}
        for name, fleet in self.fleets.items():
            fleet.check()
            rows = answer(fleet, "status").get("rows", ())  # a silent host is silent until it is asked again
            running = {row["name"] for row in rows if (row["worker"] or {}).get("state") == "running"}
            if not everybody <= running or fleet.owners() != everybody:
                return False
            if set(self.states(name).values()) != {"here", "present"}:  # a host that has gone may answer all the same
                return False
        return True

    def states(self, at: str) -> dict[str, str]:
        """By its socket, which costs less than a command: other tests run beside this one."""
        request = Request(Role.EXTERNAL, "hosts", wire_method("hosts"), deadline_ms=5000)
        try:
            reply = call(self.fleets[at].directory / "run" / "master.sock", request, 5.0)
        except (KctlError, AgentError):
            return {}
        return {row["name"]: row["state"] for row in reply.result["rows"]} if reply.ok else {}

    def miss(self, name: str) -> bool:
        return all(self.states(at).get(name) == "gone" for at in self.fleets if at != name)

    def kill(self, name: str) -> None:
        """The whole host: its master, its workers, its engine with the JVM."""
        fleet = self.fleets[name]
        others = psutil.Process(fleet.pid).children(recursive=True)
        fleet.kill()
        for each in others:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def verdicts(self, *names: str) -> dict[str, dict[str, Any]]:
        """The verdict on the fleet as each of these hosts has it."""
        return {name: answer(self.fleets[name], "status").get("verdict", {}) for name in names or self.fleets}

    def stays(self, seconds: float, *names: str, despite: str = "") -> None:
        """For so long no host finds more than `despite` that keeps messages from flowing, and all find the same."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.verdicts(*names)
            findings = [each for verdict in found.values() for each in (verdict, *verdict["also"])]
            failing = [each for each in findings if each["level"] == "failing" and each["about"] != despite]
            assert failing == [], found
        eventually(
            lambda: len({_words(each) for each in self.verdicts(*names).values()}) == 1, SETTLE_SECONDS, "all agree"
        )

    def readers(self) -> set[str]:
        """Hosts whose workers have partitions."""
        return {str(owner).partition("/")[0] for owner in self.fleets["a"].owners()}


def _words(verdict: dict[str, Any]) -> tuple[str, str]:
    """Its level and reason, but for numbers, which change from one answer to the next."""
    return verdict["level"], re.sub(r"[0-9][0-9.]*", "N", verdict["reason"])


def check_loss_of_a_host(hosts: Hosts, frozen_seconds: float) -> None:
    hosts.start()
    eventually(hosts.shows_all, START_SECONDS, "each host shows all workers")
    load = hosts.fleets["a"].load(rate=500)

    os.kill(hosts.fleets["b"].pid or 0, signal.SIGSTOP)
    frozen_at = time.monotonic()
    eventually(partial(hosts.miss, "b"), SETTLE_SECONDS, "the others miss the frozen host")
    assert hosts.readers() == {"a", "b"}, "its workers go on"
    eventually(lambda: time.monotonic() - frozen_at > frozen_seconds, frozen_seconds + 10, "it is frozen for long")
    os.kill(hosts.fleets["b"].pid or 0, signal.SIGCONT)
    eventually(hosts.shows_all, SETTLE_SECONDS, "it is back")

    hosts.kill("b")
    killed_at = time.monotonic()
    eventually(partial(hosts.miss, "b"), SETTLE_SECONDS, "the others miss the host that was killed")
    assert time.monotonic() - killed_at < on_this_machine(MISSED_WITHIN + 2.0)  # two commands, one after another
    status = hosts.fleets["c"].kctl("status", exit_code=1).stdout
    assert "host b has left the group of masters without notice" in status
    eventually(lambda: hosts.readers() == {"a"}, SETTLE_SECONDS, "its partitions have moved")
    hosts.fleets["b"].start()
    eventually(hosts.shows_all, START_SECONDS, "it is there again")
    hosts.fleets["a"].finish(load)


def check_nothing_is_lost(hosts: Hosts, table: Path | None = None) -> None:
    eventually(hosts.fleets["a"].is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    if table is not None:
        assert places(table) == sent(hosts.fleets["a"])
        return
    found = hosts.fleets["a"].audit()
    assert (found.lost, found.duplicated) == (0, 0)


@pytest.mark.shows("any host shows all hosts; after one is killed 0 lost, 0 twice")
def test_a_host_with_spark_workers_that_is_killed_is_missed_and_nothing_is_lost(
    short_dir: Path,
    broker: KafkaBroker,
    redis_server: RedisServer,
    make_fleet: Callable[..., Fleet],
) -> None:
    hosts = Hosts(make_fleet, short_dir, broker, f'mode = "redis"\nurl = "{redis_server.url}"')
    check_loss_of_a_host(hosts, frozen_seconds=0.0)
    check_nothing_is_lost(hosts)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("kind", ["redis", "lake"])
def test_hosts_outlive_a_frozen_master_a_killed_host_and_their_coordinator(
    kind: str,
    short_dir: Path,
    cluster: KafkaCluster,
    redis_server: RedisServer,
    make_fleet: Callable[..., Fleet],
) -> None:
    table = f'mode = "lake"\nuri = "{(short_dir / "table").as_uri()}"'
    storage = table if kind == "lake" else f'mode = "redis"\nurl = "{redis_server.url}"'
    hosts = Hosts(make_fleet, short_dir, cluster, storage)
    check_loss_of_a_host(hosts, frozen_seconds=60.0)

    load = hosts.fleets["a"].load(rate=500)
    group = f"{hosts.fleets['a'].group}.kctl-masters"
    with ClusterConnection(plain(cluster.bootstrap_servers), 30) as connection:
        connection.open()
        number = connection.coordinators([group])[group]
    assert isinstance(number, int)
    cluster.brokers[number].kill()
    eventually(hosts.shows_all, START_SECONDS, "another broker coordinates the masters")
    cluster.brokers[number].start()
    hosts.fleets["a"].finish(load)
    check_nothing_is_lost(hosts, short_dir / "table" if kind == "lake" else None)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.shows("a long batch, a pause, a full storage or a frozen host is not `stalled` for other hosts")
def test_what_one_host_does_is_no_trouble_on_another(
    short_dir: Path,
    broker: KafkaBroker,
    redis_server: RedisServer,
    make_fleet: Callable[..., Fleet],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("KCTL_SLOW_UNTIL", str(short_dir / "go-on"))
    hosts = Hosts(
        make_fleet,
        short_dir,
        broker,
        f'mode = "redis"\nurl = "{redis_server.url}"\nlimit = 4000',
        workers_more='transform = "tests.acceptance.transforms:slow"',
        sections=f"\n[status]\nwindow_seconds = {WINDOW_SECONDS}\n",
    )
    hosts.start()
    eventually(hosts.shows_all, START_SECONDS, "each host shows all workers")
    a, b = hosts.fleets["a"], hosts.fleets["b"]

    a.send(200)
    hosts.stays(3 * WINDOW_SECONDS)
    (short_dir / "go-on").touch()
    eventually(a.is_caught_up, SETTLE_SECONDS, "the long batch has ended")

    for fleet in (a, b):
        fleet.kctl("pause", "--all")
    a.send(200)
    hosts.stays(3 * WINDOW_SECONDS)
    assert {each["level"] for each in hosts.verdicts().values()} == {"ok"}
    for fleet in (a, b):
        fleet.kctl("resume", "--all")
    eventually(a.is_caught_up, SETTLE_SECONDS, "what was paused is read")

    a.send(8000)
    full = "every worker is throttled"
    eventually(
        lambda: {row["state"] for row in a.workers().values()} == {"throttled"},
        SETTLE_SECONDS,
        full,
    )
    eventually(lambda: hosts.verdicts("a")["a"]["about"] == "storage", SETTLE_SECONDS, "the storage is the reason")
    eventually(
        lambda: "stalled" not in str(hosts.verdicts("a")), SETTLE_SECONDS, "a worker was slow before it was full"
    )
    hosts.stays(3 * WINDOW_SECONDS, despite="storage")
    eventually(lambda: a.kctl("storage", "clear", "--yes") and a.is_caught_up(), START_SECONDS, "there is room")

    a.kctl("storage", "clear", "--yes")
    eventually(lambda: hosts.verdicts("a")["a"].get("level") == "ok", SETTLE_SECONDS, "all is well")

    family = [psutil.Process(b.pid), *psutil.Process(b.pid).children(recursive=True)]
    for each in family:
        each.suspend()
    try:
        a.send(200)
        hosts.stays(3 * WINDOW_SECONDS, "a", "c")
        assert {each["level"] for each in hosts.verdicts("a", "c").values()} == {"degraded"}
        assert hosts.readers() == {"a"}
    finally:  # else they outlive the test
        for each in family:
            each.resume()
    eventually(hosts.shows_all, START_SECONDS, "it is back")
