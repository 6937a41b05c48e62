"""Any of several hosts shows one fleet of Spark workers, and the loss of a host loses no message."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.errors import KctlError
from kctl.rpc.client import call
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import Request, Role, wire_method
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet
from tests.certificates import make_certificate
from tests.conftest import eventually, on_this_machine
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 8
MISSED_WITHIN = 8.0
HOSTS = """\
tls_certificate = "{folder}/server.pem"
read_token_file = "{folder}/read-token"

[hosts]
name = "{name}"
url = "https://127.0.0.1"
ca_file = "{folder}/cert.pem"
token_file = "{folder}/read-token"
"""


def answer(fleet: Fleet, command: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(fleet.kctl(command, "-o", "json", exit_code=None).stdout or "{}")
    return document


class Hosts:
    def __init__(self, make: Callable[..., Fleet], folder: Path, on: KafkaBroker, storage: str) -> None:
        make_certificate(folder)
        token = folder / "read-token"
        token.touch(0o600)
        token.write_text("a-token-that-may-only-read\n")
        self.fleets: dict[str, Fleet] = {}
        for name, workers in (("a", 2), ("b", 2), ("c", 0)):
            http = HOSTS.format(folder=folder, name=name)
            beside = self.fleets.get("a")
            more: dict[str, Any] = {"http": http, "storage": storage, "beside": beside}
            self.fleets[name] = make(partitions=PARTITIONS, workers=workers, on=on, **more)

    def start(self) -> None:
        for fleet in self.fleets.values():
            fleet.start()

    def shows_all(self) -> bool:
        everybody = {"a/worker-0", "a/worker-1", "b/worker-0", "b/worker-1"}
        for name, fleet in self.fleets.items():
            fleet.check()
            rows = answer(fleet, "status").get("rows", ())  # a silent host is silent until it is asked again
            running = {row["name"] for row in rows if (row["worker"] or {}).get("state") == "running"}
            if not everybody <= running or fleet.owners() != everybody:
                return False
            if set(self.states(name).values()) != {"here", "present"}:  # a lost host may still answer
                return False
        return True

    def states(self, at: str) -> dict[str, str]:
        """Uses the socket, which costs less than a command, because other tests run at the same time."""
        request = Request(Role.EXTERNAL, "hosts", wire_method("hosts"), deadline_ms=5000)
        try:
            reply = call(self.fleets[at].directory / "run" / "master.sock", request, 5.0)
        except (KctlError, AgentError):
            return {}
        return {row["name"]: row["state"] for row in reply.result["rows"]} if reply.ok else {}

    def miss(self, name: str) -> bool:
        return all(self.states(at).get(name) == "gone" for at in self.fleets if at != name)

    def kill(self, name: str) -> None:
        fleet = self.fleets[name]
        others = psutil.Process(fleet.pid).children(recursive=True)
        fleet.kill()
        for each in others:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def readers(self) -> set[str]:
        return {str(owner).partition("/")[0] for owner in self.fleets["a"].owners()}


@pytest.mark.shows("any host shows all hosts; after one is killed 0 lost, 0 twice")
def test_a_host_with_spark_workers_that_is_killed_is_missed_and_nothing_is_lost(
    short_dir: Path, broker: KafkaBroker, redis_server: RedisServer, make_fleet: Callable[..., Fleet]
) -> None:
    hosts = Hosts(make_fleet, short_dir, broker, f'mode = "redis"\nurl = "{redis_server.url}"')
    hosts.start()
    eventually(hosts.shows_all, START_SECONDS, "each host shows all workers")
    load = hosts.fleets["a"].load(rate=500)

    os.kill(hosts.fleets["b"].pid or 0, signal.SIGSTOP)
    eventually(partial(hosts.miss, "b"), SETTLE_SECONDS, "the others miss the frozen host")
    assert hosts.readers() == {"a", "b"}, "its workers go on"
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

    eventually(hosts.fleets["a"].is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    found = hosts.fleets["a"].audit()
    assert (found.lost, found.duplicated) == (0, 0)
