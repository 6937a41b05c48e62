"""A real master whose API is attacked or kept busy: it refuses, it lives, and its agents answer throughout."""

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
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, JsonObject
from tests.meanwhile import Meanwhile
from tests.prometheus import require

pytestmark = pytest.mark.real

TOKEN = "0123456789abcdef-a-token-of-some-length"
HALF_REQUESTS = 150
WRONG_TOKENS = 40
CALL_SECONDS = 5.0


class Throughout(Meanwhile):
    """Asks each agent, the master and `/healthz` again and again while it is entered."""

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
    """A fleet of two workers whose API has a token."""
    (short_dir / "token").touch(0o600)
    (short_dir / "token").write_text(TOKEN)
    return master(http={"port": 0, "token_file": str(short_dir / "token")})


def test_a_refused_client_costs_no_other_an_answer_and_nothing_reveals_the_token(
    guarded: Any, eventually: Callable[..., Any]
) -> None:
    url, pids = guarded.about["http_url"], [row["pid"] for row in guarded.status().values()]
    reported: list[str] = []
    with httpx.Client(base_url=url, timeout=CALL_SECONDS) as client, half_requests(url), Throughout(guarded) as others:
        eventually(lambda: others.turns >= 3)

        def refusal(method: str, path: str, **options: Any) -> tuple[int, str]:
            response = client.request(method, path, **options)
            reported.append(f"{response.headers}{response.text}")
            return response.status_code, response.json()["error"]["code"]

        operation = {"operation": "pause", "params": {"topic": "orders"}}
        right, wrong = ({"authorization": f"Bearer {token}"} for token in (TOKEN, f"{TOKEN[:-1]}x"))
        evil = {"origin": "http://evil.example"}
        assert refusal("POST", "/api/v1/operations", json=operation) == (401, "unauthorized")
        assert refusal("POST", "/api/v1/operations", json=operation, headers=evil) == (403, "not_allowed")
        assert refusal("POST", "/api/v1/operations", json=operation, headers=right | evil) == (403, "not_allowed")
        assert refusal("GET", "/api/v1/lag", headers=evil) == (403, "not_allowed")
        assert refusal("GET", "/api/v1/lag", headers={"host": "evil.example"}) == (403, "not_allowed")
        assert refusal("POST", "/api/v1/operations", content=b"{" * 100_000, headers=right) == (413, "body_too_large")
        assert refusal("GET", "/api/v1/lag", headers={"x": "y" * 15_000, "z": "y" * 5_000})[0] == 431
        refused = [refusal("POST", "/api/v1/operations", json=operation, headers=wrong) for _ in range(WRONG_TOKENS)]
        assert set(refused) == {(401, "unauthorized")}
        assert refusal("POST", "/api/v1/operations", json={"operation": "nothing"}, headers=right) == (
            400,
            "unknown_method",
        )
        before = others.turns
        eventually(lambda: others.turns >= before + 3)

    assert others.wrong == []
    assert [row["pid"] for row in guarded.status().values()] == pids
    assert guarded.ask("ping").complete
    rows = httpx.get(f"{url}/api/v1/operations", timeout=CALL_SECONDS).json()["rows"]
    assert rows == [], "nothing that was refused was done"
    paths = ("/", "/docs", "/openapi.json", "/metrics", "/api/v1/status", "/api/v1/operations")
    reported += [httpx.get(f"{url}{path}", timeout=CALL_SECONDS).text for path in paths]
    show = [sys.executable, "-m", "kctl", "config", "show", "-c", str(guarded.config), "-o"]
    forms = ("table", "json", "yaml")
    reported += [subprocess.run([*show, form], capture_output=True, text=True, check=True).stdout for form in forms]
    assert guarded.stop() == 0
    folder = guarded.config.parent
    reported += [
        path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file() and path.name != "token"
    ]
    assert any("action=wrong_token" in each for each in reported), "the log is among what was searched"
    assert [each for each in reported if TOKEN in each] == []


NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "9223372036854775808")


def raw(path: Path, body: str) -> JsonObject:
    """What a socket of ours answers to a frame that no client of ours would send."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CALL_SECONDS)
        connection.connect(str(path))
        connection.sendall(len(body).to_bytes(4, "big") + body.encode())
        decoder = Decoder(MAX_REPLY_BYTES)
        while True:
            for frame in decoder.feed(connection.recv(65536)):
                return frame


def test_numbers_that_are_none_are_refused_everywhere_and_the_operations_can_be_listed(guarded: Any) -> None:
    url = guarded.about["http_url"]
    operation = '{"role": 0, "rpc": "pause", "method": "onPause", "deadline_ms": %s, "params": {"all": true%s}}'
    to_agent = '{"role": 1, "rpc": "pause", "method": "getPause", "params": {"operation": "1", "scopes": [%s]}}'
    right = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    for number in NUMBERS:
        deadline = f', "deadline_seconds": {number}'
        content = f'{{"operation": "pause", "params": {{"all": true{deadline}}}}}'
        scope = f'{{"topic": null, "partition": null, "by": "x", "since": {number}}}'

        answer = httpx.post(f"{url}/api/v1/operations", content=content, headers=right, timeout=CALL_SECONDS)
        replies = [
            raw(guarded.run_dir / "master.sock", operation % (2000, deadline)),
            raw(guarded.run_dir / "master.sock", operation % (number, "")),
            raw(guarded.run_dir / "worker-0.sock", to_agent % scope),
        ]

        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_params")
        assert [reply["ok"] for reply in replies] == [False] * 3
        assert {reply["error"]["code"] for reply in replies} <= {"bad_params", "bad_payload", "bad_request"}, replies
        assert httpx.get(f"{url}/api/v1/operations", timeout=CALL_SECONDS).json() == {"rows": []}
        assert guarded.ask("operations", of_master=True).result == {"rows": []}
    assert "Traceback" not in guarded.log.read_text()


FEW_DESCRIPTORS = 128
PROBE = Path(__file__).parents[2] / "deploy" / "docker" / "probe"


@contextmanager
def few_descriptors() -> Iterator[None]:
    """For what is started meanwhile."""
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


@pytest.mark.shows("while strangers hold every HTTP connection, agents, `master.sock` and the probe answer")
def test_strangers_that_hold_every_connection_leave_sockets_and_probe_alone(
    master: Callable[..., Any], short_dir: Path, eventually: Callable[..., Any]
) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=short_dir, check=True, capture_output=True,
    )  # fmt: skip
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


@contextmanager
def half_requests(url: str) -> Iterator[None]:
    """Many connections that have begun a request and do not come to its end."""
    host, port = url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        for _ in range(HALF_REQUESTS):
            connection = stack.enter_context(socket.create_connection((host, int(port)), CALL_SECONDS))
            connection.sendall(b"POST /api/v1/operations HTTP/1.1\r\nHost: localhost\r\nX: ")
        yield


@pytest.mark.alone
def test_under_wrk_every_request_is_answered_and_agents_too(guarded: Any, eventually: Callable[..., Any]) -> None:
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
    """How many requests were answered, and what wrk reports that went wrong."""
    started = time.monotonic()
    done = subprocess.run([wrk, *options, url], capture_output=True, text=True, check=True, timeout=60)
    requests = re.search(r"(\d+) requests in", done.stdout)
    assert requests, f"{done.stdout} after {time.monotonic() - started:.1f} s"
    errors = re.findall(r"Socket errors.*|Non-2xx.*", done.stdout)
    return int(requests[1]), "; ".join(errors)
