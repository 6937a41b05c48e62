"""A real master whose API is flooded or whose connections are held keeps running, and its agents answer."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl.rpc.client import call
from kctl_agent.rpc.messages import Request, Role, reducer_method, wire_method
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.meanwhile import GoodCaller

TOKEN = "0123456789abcdef-a-token-of-some-length"
CALL_SECONDS = 5.0
CALLERS = 32


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
def test_under_load_every_request_is_answered_and_agents_too(guarded: Any) -> None:
    url, method = guarded.about["http_url"], wire_method("kafka_lag")
    eventually(lambda: httpx.get(f"{url}/api/v1/lag").status_code == 200, what="there is a first snapshot")
    asked = {f"worker-{number}.sock": Request(Role.MASTER, "kafka_lag", method) for number in (0, 1)}
    asked["master.sock"] = Request(Role.EXTERNAL, "kafka_lag", reducer_method("kafka_lag"))

    def ask(name: str) -> str | None:
        return None if call(guarded.run_dir / name, asked[name], CALL_SECONDS).ok else name

    def load(_: int) -> list[int]:
        with httpx.Client(base_url=url, timeout=10.0) as client:
            return [client.get(path).status_code for path in ("/api/v1/lag", "/api/v1/status", "/metrics") * 20]

    others = GoodCaller(*(partial(ask, name) for name in asked), pause_seconds=0.01)
    with others, ThreadPoolExecutor(CALLERS) as pool:
        codes = [code for each in pool.map(load, range(CALLERS)) for code in each]

    assert set(codes) == {200}
    assert others.wrong == []
    assert others.turns > 0
    assert all(row["state"] == "running" and row["restarts"] == 0 for row in guarded.status().values())
    assert "Traceback" not in guarded.log.read_text()
