"""A question to one master of a fleet on 50 hosts: 1,000 workers, 100,000 partitions.

The other 49 masters are canned: one process answers at 49 ports what they would. What is measured is the asking master:
49 requests, what they bring decoded, reduced together with the brokers' view of all partitions, and encoded. `cpu_ms`
is its work, the rest of a question's time waiting for answers and for a processor.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from msgspec import Raw

from kctl.hosts.hosts import AgentReply, HostReplies, Hosts
from kctl.hosts.membership import HostsMember, Seen
from kctl.hosts.peers import Peers, PeersAccess
from kctl.hosts.roster import Host, Roster
from kctl.kafka.client.access import plain
from kctl.master.reduction import COMMANDS, WORKERS, reduced
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness
from kctl.rpc.fan_out import FanOut
from kctl.start.signals import tune_process
from tests.partitions import Row, columns_of
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

FLEET = ("bench", "bench")
WORKERS_EACH, PARTITIONS_EACH = 20, 2000
MEMBERS = 5
TARGETS_MS = {"workers": 150.0, "kafka_lag": 300.0}


def main() -> None:
    parser = argparse.ArgumentParser(description="a question to all hosts of a fleet")
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rest-seconds", type=float, default=30.0)
    options = parser.parse_args()
    _at_rest(options.rest_seconds)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(options.hosts - 1)]
    hosts = [Host(f"host-{n}", f"http://127.0.0.1:{each.getsockname()[1]}", 1) for n, each in enumerate(sockets)]
    others = multiprocessing.get_context("fork").Process(target=_serve, args=(sockets, hosts), daemon=True)
    others.start()
    tune_process()
    try:
        asyncio.run(_measure(hosts, options.questions))
    finally:
        others.terminate()
        others.join()


def _at_rest(seconds: float) -> None:
    """The cost of being a member of the masters' group."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as folder, KafkaBroker(Path(folder)) as broker:
        create_topic(broker.bootstrap_servers, "orders", 1)
        members = [
            HostsMember(plain(broker.bootstrap_servers), "masters", "orders", Host(f"h{n}", f"https://h{n}:1", n), 60.0)
            for n in range(MEMBERS)
        ]
        pause = threading.Event()
        for each in members:
            each.start()
        while any(len(each.seen.roster.hosts) < MEMBERS for each in members):
            pause.wait(0.1)
        began = time.process_time()
        pause.wait(seconds)
        share = (time.process_time() - began) / seconds / MEMBERS
        for each in members:
            each.close()
    line = {"benchmark": "hosts_at_rest", "members": MEMBERS, "cpu_share_of_one": round(share, 5), "target": 0.002}
    print(json.dumps({**line, "met": share <= 0.002}), flush=True)


class _Member:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    @property
    def seen(self) -> Seen:
        return Seen(self._roster, time.monotonic())


async def _measure(others: list[Host], questions: int) -> None:
    me = Host("me", "http://127.0.0.1:1", 1)
    member: Any = _Member(Roster("me", 1, (me, *others)))
    peers = Peers(PeersAccess(allow_plain=True))
    hosts = Hosts(member, peers, me, FLEET)
    brokers = _of_brokers(len(others) * PARTITIONS_EACH)
    for name, target in TARGETS_MS.items():
        command, took, used = COMMANDS[name], [], []
        for number in range(questions + 2):  # the first connect
            began, began_cpu = time.perf_counter(), time.process_time()
            outcome = await hosts.ask(name, 5.0)
            assert outcome.failed == (), outcome.failed
            whole = await asyncio.to_thread(_reduced, command, outcome.joined(FanOut([], []), "me"), brokers)
            if number >= 2:
                took.append((time.perf_counter() - began) * 1000)
                used.append((time.process_time() - began_cpu) * 1000)
        p99 = sorted(took)[int(len(took) * 0.99) - 1]
        line = {
            "benchmark": f"hosts_{name}",
            "hosts": len(others) + 1,
            "answer_bytes": whole,
            "p50_ms": round(statistics.median(took), 1),
            "p99_ms": round(p99, 1),
            "cpu_ms": round(statistics.median(used), 1),
            "target": target,
        }
        print(json.dumps({**line, "met": p99 <= target}), flush=True)
    await peers.close()


def _reduced(command: Any, outcome: FanOut[Raw], brokers: BrokerSnapshot) -> int:
    whole = reduced(command, command.between_hosts().decoded(outcome), brokers, Freshness(0.1, 0.1, 5.0, None))
    assert whole.complete, whole.failed
    return len(msgspec.json.encode(command.encoded(whole.result)))


def _of_brokers(partitions: int) -> BrokerSnapshot:
    rows = (Row("orders", n, 0, n, None, n + 500, None, None, None, 0.5) for n in range(partitions))
    return BrokerSnapshot(columns_of(*rows))


def _serve(sockets: list[socket.socket], hosts: list[Host]) -> None:
    bodies = {
        (each.getsockname()[1], name): _body(host, number, name)
        for number, (each, host) in enumerate(zip(sockets, hosts, strict=True))
        for name in TARGETS_MS
    }

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        body = bodies[scope["server"][1], scope["path"].rpartition("/")[2]]
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False, timeout_keep_alive=60)
    asyncio.run(uvicorn.Server(config).serve(sockets=sockets))


def _body(host: Host, number: int, name: str) -> bytes:
    replies = tuple(_replies(number, name))
    return msgspec.json.encode(HostReplies(*FLEET, host.name, 1, replies, status=Raw(b'{"rows": []}')))


def _replies(number: int, name: str) -> list[AgentReply]:
    each = PARTITIONS_EACH // WORKERS_EACH
    found = []
    for worker in range(WORKERS_EACH):
        first = number * PARTITIONS_EACH + worker * each
        rows = [_row(partition) for partition in range(first, first + each)]
        result = (
            {"name": f"worker-{worker}", "kind": "worker", "state": "running"}
            if name == WORKERS.name
            else {"rows": rows}
        )
        found.append(Answer(f"worker-{worker}", Raw(msgspec.json.encode(result)), 0.1))
    answers = COMMANDS[name].shortened(FanOut(found, [])).answers
    return [AgentReply(each.sender, each.age_seconds, each.result) for each in answers]


def _row(partition: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": partition,
        "start": 0,
        "committed": partition,
        "position": partition,
        "end": partition + 500,
        "last_timestamp": 1.0,
        "generation": 7,
        "age_seconds": 0.2,
    }


if __name__ == "__main__":
    main()
