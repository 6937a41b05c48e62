"""Agents and masters keep running, do not grow, and answer good callers under random frames, floods of requests and
held connections."""

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from kctl.rpc.client import Reply, call
from kctl_agent.rpc.messages import Request, Role, reducer_method, wire_method
from kctl_agent.rpc.wire import encode
from tests.caller import Caller, question
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.hostile import attack
from tests.integration.conftest import Master, write_secret
from tests.meanwhile import GoodCaller

FRAMES = 10_000
CALL_SECONDS = 5.0
SEED = 20_260_101
SLOWEST_SECONDS = 2.5
GROWTH_BYTES = 8 << 20

SERVE = """
import logging, sys, time
from pathlib import Path
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
rows = tuple(PartitionReply("orders", number, 0, 10, 12, 20) for number in range(50))
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[2])
with AgentServer(Path(sys.argv[1]), "worker-0", frame_timeout_seconds=1.0) as server:
    worker = WorkerReply.starting("worker-0", "worker")
    server.publish(Snapshot(time.monotonic(), worker, replies=(PartitionsReply(rows),)))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def agent(short_dir: Path, tmp_path: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-c", SERVE, str(short_dir), str(tmp_path / "agent.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield psutil.Process(process.pid)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.shows("after 10,000 hostile frames an agent has not crashed, hung or grown, and serves a good caller")
def test_ten_thousand_hostile_frames_do_no_harm(agent: psutil.Process, short_dir: Path, tmp_path: Path) -> None:
    path = short_dir / "worker-0.sock"
    valid = question("kafka_lag", "secret-of-the-caller")
    attack(path, valid, SEED, FRAMES // 5)  # one-time allocations are not growth
    with Caller(path) as caller:
        assert caller.ask("ping").ok
    eventually(lambda: _sockets(agent) == 1, what="connections of the warm-up are still open")
    before, resident = (agent.num_fds(), agent.num_threads()), agent.memory_info().rss

    def over(caller: Caller) -> Reply | None:
        reply = caller.ask("offset_checker")
        return None if reply.ok and len(reply.result["rows"]) == 50 else reply

    def over_a_new_one() -> Reply | None:
        with Caller(path) as fresh:
            return over(fresh)

    with Caller(path) as kept, GoodCaller(lambda: over(kept), over_a_new_one) as good:

        def attack_until_all_was_tried(seed: int) -> None:
            attack(path, valid, seed, FRAMES // 4)
            while (
                len(good.took) <= 100 and not good.wrong
            ):  # the good caller shares this process's one lock with its attackers
                attack(path, valid, seed + len(good.took), 100)

        attackers = [threading.Thread(target=attack_until_all_was_tried, args=(SEED + n,)) for n in range(1, 5)]
        for each in attackers:
            each.start()
        for each in attackers:
            each.join()

    assert good.wrong == []
    took = sorted(good.took)
    assert took[-1] < SLOWEST_SECONDS
    eventually(lambda: (agent.num_fds(), agent.num_threads()) == before, what="descriptors or threads have grown")
    growth = agent.memory_info().rss - resident
    print(f"{len(took)} good calls, slowest {took[-1] * 1000:.1f} ms, memory {growth / 2**20:+.1f} MiB")
    assert growth < GROWTH_BYTES
    log = (tmp_path / "agent.log").read_text()
    assert "Traceback" not in log
    assert "secret-of-the-caller" not in log
    assert len(log.splitlines()) < 200


def _sockets(agent: psutil.Process) -> int:
    folder = f"/proc/{agent.pid}/fd"
    # Some may be closed meanwhile, so that they have no target.
    return sum("socket:" in os.path.realpath(f"{folder}/{fd}") for fd in os.listdir(folder))


TO_MASTER = encode(Request(Role.EXTERNAL, "describe", "getDescribe", id="x", params={}, deadline_ms=500).to_json())


@pytest.mark.shows("10,000 hostile frames do not harm the master either")
def test_ten_thousand_hostile_frames_neither_break_nor_feed_the_master(master: Callable[..., Master]) -> None:
    fleet = master(workers={"count": 1})
    path = fleet.run_dir / "master.sock"
    process = psutil.Process(fleet.process.pid)
    # One-time connections, imports and caches are not growth.
    eventually(lambda: 'part="committed"' in fleet.get("/metrics"))
    attack(path, TO_MASTER, SEED, FRAMES)
    eventually(lambda: process.num_fds() < 30)
    descriptors, resident = process.num_fds(), process.memory_info().rss

    def ask(rpc: str, method: str) -> Reply | None:
        reply = call(path, Request(Role.EXTERNAL, rpc, method, id="good"), CALL_SECONDS)
        return None if reply.ok and reply.id == "good" else reply

    asks = (partial(ask, "ping", "getPing"), partial(ask, "kafka_lag", "onKafkaLag"))
    with GoodCaller(*asks, pause_seconds=0.005) as good:
        attack(path, TO_MASTER, SEED + 1, FRAMES)

    took = sorted(good.took)
    growth = process.memory_info().rss - resident
    print(f"{len(took)} good calls, slowest {took[-1] * 1000:.1f} ms, memory {growth / 2**20:+.1f} MiB")
    assert good.wrong == []
    assert took[-1] < CALL_SECONDS / 2
    eventually(lambda: process.num_fds() <= descriptors + 2, what="descriptors have leaked")
    assert growth < 16 * 2**20
    assert fleet.status()["worker-0"]["restarts"] == 0
    assert "Traceback" not in fleet.log.read_text()
    assert fleet.stop() == 0


CALLERS = 32
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


def probe(fleet: Master, question: str) -> tuple[int, str]:
    env = {**os.environ, "KCTL_CONFIG": str(fleet.config)}
    done = subprocess.run([sys.executable, PROBE, question], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.shows("agents, `master.sock` and the probe answer even if strangers use every HTTP connection")
def test_strangers_on_all_connections_leave_the_probe(master: Callable[..., Master], short_dir: Path) -> None:
    make_certificate(short_dir)
    write_secret(short_dir / "token", "a-token-of-some-length")
    http = {"token_file": "token", "tls_certificate": "cert.pem", "tls_key": "key.pem"}
    with few_descriptors():
        fleet = master(http=http)
    address = ("127.0.0.1", int(fleet.about["http_url"].rpartition(":")[2]))

    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address, CALL_SECONDS)) for _ in range(2 * FEW_DESCRIPTORS)
        ]
        eventually(lambda: sum(map(has_ended, strangers)) >= FEW_DESCRIPTORS)

        assert psutil.Process(fleet.process.pid).num_fds() < FEW_DESCRIPTORS - 20
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
def test_under_load_every_request_is_answered_and_agents_too(master: Callable[..., Master]) -> None:
    fleet = master()
    url, method = fleet.about["http_url"], wire_method("kafka_lag")
    eventually(lambda: httpx.get(f"{url}/api/v1/lag").status_code == 200, what="there is a first snapshot")
    asked = {f"worker-{number}.sock": Request(Role.MASTER, "kafka_lag", method) for number in (0, 1)}
    asked["master.sock"] = Request(Role.EXTERNAL, "kafka_lag", reducer_method("kafka_lag"))

    def ask(name: str) -> str | None:
        return None if call(fleet.run_dir / name, asked[name], CALL_SECONDS).ok else name

    def load(_: int) -> list[int]:
        with httpx.Client(base_url=url, timeout=10.0) as client:
            return [client.get(path).status_code for path in ("/api/v1/lag", "/api/v1/status", "/metrics") * 20]

    others = GoodCaller(*(partial(ask, name) for name in asked), pause_seconds=0.01)
    with others, ThreadPoolExecutor(CALLERS) as pool:
        codes = [code for each in pool.map(load, range(CALLERS)) for code in each]

    assert set(codes) == {200}
    assert others.wrong == []
    assert others.turns > 0
    assert all(row["state"] == "running" and row["restarts"] == 0 for row in fleet.status().values())
    assert "Traceback" not in fleet.log.read_text()
