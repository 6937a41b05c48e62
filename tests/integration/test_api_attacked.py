"""A real master whose API is flooded or whose connections are held keeps running, and its agents answer."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl.rpc.client import call
from kctl_agent.rpc.messages import Request, Role, reducer_method, wire_method
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.meanwhile import Meanwhile
from tests.prometheus import require

TOKEN = "0123456789abcdef-a-token-of-some-length"
CALL_SECONDS = 5.0


class Throughout(Meanwhile):
    def __init__(self, fleet: Any) -> None:
        super().__init__(pause_seconds=0.01)
        self._run_dir, self._url = fleet.run_dir, fleet.about["http_url"]
        self._questions = [
            *(
                (f"worker-{n}.sock", Request(Role.MASTER, "kafka_lag", wire_method("kafka_lag"), id="7f"))
                for n in (0, 1)
            ),
            ("master.sock", Request(Role.EXTERNAL, "kafka_lag", reducer_method("kafka_lag"), id="7f")),
        ]

    def turn(self) -> None:
        self.wrong += [
            name for name, question in self._questions if not call(self._run_dir / name, question, CALL_SECONDS).ok
        ]
        healthz = httpx.get(f"{self._url}/healthz", timeout=CALL_SECONDS)
        self.wrong += [] if healthz.status_code == 200 else [healthz.text]


@pytest.fixture
def guarded(master: Callable[..., Any], short_dir: Path) -> Any:
    (short_dir / "token").touch(0o600)
    (short_dir / "token").write_text(TOKEN)
    return master(http={"port": 0, "token_file": str(short_dir / "token")})


FEW_DESCRIPTORS = 128
PROBE = Path(__file__).parents[2] / "deploy" / "docker" / "probe"


@contextmanager
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def probe(fleet: Any, question: str) -> tuple[int, str]:
    env = {**os.environ, "KCTL_CONFIG": str(fleet.config)}
    done = subprocess.run([sys.executable, PROBE, question], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.shows("agents, `master.sock` and the probe answer even if strangers use every HTTP connection")
def test_strangers_on_all_connections_leave_the_probe(master: Callable[..., Any], short_dir: Path) -> None:
    make_certificate(short_dir)
    (short_dir / "token").write_text(TOKEN)
    (short_dir / "token").chmod(0o600)
    http = {"port": 0, "token_file": "token", "tls_certificate": "cert.pem", "tls_key": "key.pem"}
    with few_descriptors():
        fleet = master(http=http)
    address = ("127.0.0.1", int(fleet.about["http_url"].rpartition(":")[2]))
    descriptors = Path(f"/proc/{fleet.process.pid}/fd")

    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address, CALL_SECONDS)) for _ in range(2 * FEW_DESCRIPTORS)
        ]
        eventually(lambda: sum(map(has_ended, strangers)) >= FEW_DESCRIPTORS)

        assert len(list(descriptors.iterdir())) < FEW_DESCRIPTORS - 20
        for name in ("worker-0.sock", "worker-1.sock"):
            ping = Request(Role.MASTER, "ping", wire_method("ping"))
            assert call(fleet.run_dir / name, ping, CALL_SECONDS).ok
        assert fleet.ask("workers").complete
        assert probe(fleet, "healthz") == (0, "")
        eventually(lambda: probe(fleet, "readyz")[1].startswith("readyz: ") or probe(fleet, "readyz") == (0, ""))
    assert "Too many open files" not in fleet.log.read_text()
    assert fleet.stop() == 0
    code, reported = probe(fleet, "healthz")
    assert (code, reported.startswith("healthz: no master is running there")) == (1, True)


@pytest.mark.alone
def test_under_wrk_every_request_is_answered_and_agents_too(guarded: Any) -> None:
    (wrk,) = require("wrk", packages="wrk")
    url = guarded.about["http_url"]
    eventually(lambda: httpx.get(f"{url}/api/v1/lag").status_code == 200, what="there is a first snapshot")

    with Throughout(guarded) as others:
        reported = [loaded(wrk, f"{url}{path}") for path in ("/api/v1/lag", "/api/v1/status", "/metrics")]

    print(json.dumps(reported), f"{others.turns} rounds of questions beside it")
    assert others.wrong == []
    assert others.turns > 0
    assert all(requests > 0 for requests, _ in reported)
    assert [each for _, each in reported] == ["", "", ""], "socket errors, or answers that are no success"
    assert guarded.ask("ping").complete
    assert all(row["state"] == "running" and row["restarts"] == 0 for row in guarded.status().values())
    assert "Traceback" not in guarded.log.read_text()


def loaded(wrk: str, url: str, options: Sequence[str] = ("-t1", "-c32", "-d1s", "--timeout", "10s")) -> tuple[int, str]:
    started = time.monotonic()
    done = subprocess.run([wrk, *options, url], capture_output=True, text=True, check=True, timeout=60)
    requests = re.search(r"(\d+) requests in", done.stdout)
    assert requests, f"{done.stdout} after {time.monotonic() - started:.1f} s"
    errors = re.findall(r"Socket errors.*|Non-2xx.*", done.stdout)
    return int(requests[1]), "; ".join(errors)
