"""A real second user can call a running master neither by the command line nor over the bare socket.

The same of an agent is in tests/integration/test_agent_socket.py; that run_dir is refused with a wrong owner or mode,
in tests/integration/test_refused_start.py; the rules one by one, in tests/unit/agent/test_paths.py.
"""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl_agent.rpc.server import AgentServer
from tests.acceptance.fleets import START_SECONDS, Fleet
from tests.conftest import eventually
from tests.servers.kafka_broker import KafkaBroker
from tests.stranger import KCTL, NOBODY, needs_root, run_as_nobody

pytestmark = pytest.mark.timeout(120)

_IMPORTS = """
from kctl_agent.rpc.messages import Request, Role
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, encode
"""
_ASK = """
with socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(10)
    peer.connect(sys.argv[1])
    try:
        peer.sendall(encode(Request(Role.EXTERNAL, sys.argv[2], sys.argv[3]).to_json()))
    except BrokenPipeError:
        pass
    decoder, replies = Decoder(MAX_REPLY_BYTES), []
    while not replies and (data := peer.recv(65536)):
        replies = decoder.feed(data)
    [reply] = replies
    print(os.getuid(), reply["ok"], reply["error"]["code"], "result" in reply)
"""
"""Asks once and prints the answer. (A rejected peer may find the socket closed before it has sent.)"""


@pytest.fixture(scope="module")
def fleet(broker: KafkaBroker) -> Iterator[Fleet]:
    """A running master; its worker cannot start, so Spark is not needed."""
    directory = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    transform = 'transform = "no_such_module:clean"'
    fleet = Fleet(directory, broker, partitions=1, workers=1, engine="own", workers_more=transform)
    try:
        fleet.start()
        eventually(lambda: "action=fatal" in fleet.log.read_text(), START_SECONDS, "the worker has been given up")
        yield fleet
    finally:
        fleet.close()
        print(fleet.log_tail())
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def open_to_all(fleet: Fleet) -> Iterator[Callable[..., None]]:
    before: dict[Path, int] = {}

    def let(mode: int, *paths: Path) -> None:
        for path in paths:
            before.setdefault(path, stat.S_IMODE(path.stat().st_mode))
            path.chmod(mode)

    yield let
    for path, mode in before.items():
        path.chmod(mode)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The fleet outlives a test here."""


_GET = """
for path in sys.argv[2:]:
    with socket.socket() as peer:
        peer.settimeout(10)
        peer.connect(("127.0.0.1", int(sys.argv[1])))
        peer.sendall(f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        answer = b""
        while data := peer.recv(65536):
            answer += data
    print(answer.split()[1].decode(), b"worker-0 is" in answer)
print(os.getuid())
"""


@pytest.mark.shows("another user on loopback cannot read errors, operations or the page without a token")
@needs_root
def test_over_http_another_user_reads_no_errors_on_loopback(fleet: Fleet) -> None:
    about = json.loads((fleet.directory / "run" / "master.json").read_text())
    port = about["http_url"].rpartition(":")[2]
    paths = ("/api/v1/workers", "/api/v1/status", "/api/v1/operations", "/", "/readyz", "/metrics", "/healthz")
    command = [sys.executable, "-c", f"import os, socket, sys{_GET}", port, *paths]

    def asked() -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    shown = ["200 True", "200 True", "200 False", "200 False", "503 True", "200 False", "200 False", "0"]
    eventually(lambda: asked() == shown, START_SECONDS, "the worker is the first reason, not a collection that is late")
    other = run_as_nobody(_GET, port, *paths)

    assert other.stdout.splitlines() == [*["401 False"] * 4, "503 False", "200 False", "200 False", str(NOBODY)]


def test_run_dir_and_everything_in_it_are_for_their_owner_alone(fleet: Fleet) -> None:
    run_dir = fleet.directory / "run"
    with AgentServer(run_dir, "guest"):
        modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in run_dir.iterdir()}

    assert stat.S_IMODE(run_dir.lstat().st_mode) == 0o700
    assert {"master.sock", "master.json", "master.lock", "master.pid", "guest.sock"} <= modes.keys()
    assert set(modes.values()) == {0o600}


@needs_root
def test_another_user_learns_that_the_fleet_is_not_theirs(fleet: Fleet, open_to_all: Callable[..., None]) -> None:
    open_to_all(0o755, fleet.directory)
    open_to_all(0o644, fleet.config)

    done = run_as_nobody(KCTL, "rpc", "kafka_lag", "-c", str(fleet.config))

    assert done.returncode == 5
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "not permitted" in done.stderr or "belongs to another user" in done.stderr


@needs_root
@pytest.mark.parametrize(("rpc", "method"), [("kafka_lag", "onKafkaLag"), ("status", "getStatus")])
def test_the_kernel_identifies_strangers(fleet: Fleet, open_to_all: Callable[..., None], rpc: str, method: str) -> None:
    run_dir = fleet.directory / "run"
    open_to_all(0o755, fleet.directory, run_dir)
    open_to_all(0o666, run_dir / "master.sock")

    done = run_as_nobody(_ASK, str(run_dir / "master.sock"), rpc, method, imports=_IMPORTS)

    assert done.stderr == ""
    assert done.stdout.split() == [str(NOBODY), "False", "not_permitted", "False"]
    assert f"action=refused uid={NOBODY}" in fleet.log.read_text()
    assert fleet.ask("kafka_lag") is not None, "its own user is served as before"
