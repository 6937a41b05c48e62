"""What one question to an agent costs, against a raw AF_UNIX echo with the same framing in plain Python.

Both servers run in processes of their own and are asked by this one over a connection that stays open, in turns of
`TURN_CALLS` calls, so that whatever else the machine does falls on both. All three are kept on one processor: waking
a process on another costs more than the whole echo, and left to the scheduler that falls on one side or the other (a
run without it gave 0.78). The client is the same code for both: send a prepared frame, receive until the length is
reached; so the ratio is the agent against the echo and nothing else. Beside it stands the whole of a caller's view,
which also encodes the question and decodes the reply (`caller_…`).

    python benchmarks/round_trip.py [--calls 20000]

Prints two JSON lines: `agent_round_trip` (p50 at most 2.0 x the echo's; microseconds) and `agent_idle_p99` (1000 calls
with a pause before each, on any processor, below 1 ms).
"""

import argparse
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, perf_counter_ns
from timeit import Timer

from kctl.rpc.client import reply_of
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import AgentCommand
from kctl_agent.rpc.dispatch import Dispatcher, FaultCounters
from kctl_agent.rpc.messages import Request, Role
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import (
    HEADER_BYTES,
    MAX_REPLY_BYTES,
    MAX_REQUEST_BYTES,
    Decoder,
    FrameDecoder,
    JsonObject,
    encode,
    json_text,
)

TARGET_RATIO = 2.0
TARGET_IDLE_MS = 1.0
TURN_CALLS = 250
WARM_UP_CALLS = 2000
IDLE_CALLS = 1000
QUESTION = Request(Role.MASTER, "block_size", "getBlockSize", id="7f", deadline_ms=2000)


def _block_size(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """What `block_size` was when the target was set: a reply of 200 bytes, however many fields it has today."""
    return {
        "storage": "file:/srv/orders/storage.sqlite",
        "pending": 120500,
        "processing": 500,
        "dead": 0,
        "bytes": 24100000,
        "limit": 1000000,
    }


COMMANDS = {"block_size": AgentCommand("block_size", _block_size, "messages and bytes in the storage")}

Ask = Callable[[], int]
"""One round trip; returns its nanoseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a question to an agent")
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "RUN_DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, folder = options.serve
        (_serve_agent if kind == "agent" else _serve_echo)(Path(folder))
        return
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(processors)})  # the servers inherit it
    with _serving("agent") as agent, _serving("echo") as echo:
        _measure_round_trip(agent, echo, options.calls)
    os.sched_setaffinity(0, processors)
    with _serving("agent") as agent:
        _measure_idle(agent)


def _measure_round_trip(agent: socket.socket, echo: socket.socket, calls: int) -> None:
    reply = _answered(agent)
    asks = {
        "ours": _same_client(agent, encode(QUESTION.to_json())),
        "raw": _same_client(echo, reply),
        "caller": _caller(agent),
    }
    took = {name: [ask() for _ in range(WARM_UP_CALLS)][:0] for name, ask in asks.items()}
    for _ in range(max(calls // TURN_CALLS, 1)):
        for name, ask in asks.items():
            took[name] += [ask() for _ in range(TURN_CALLS)]
    p50 = {name: _percentile(values, 0.5) / 1000 for name, values in took.items()}
    line = {
        "benchmark": "agent_round_trip",
        "ours_p50_us": round(p50["ours"], 1),
        "raw_p50_us": round(p50["raw"], 1),
        "ratio": round(p50["ours"] / p50["raw"], 2),
        "target": TARGET_RATIO,
        "met": p50["ours"] <= TARGET_RATIO * p50["raw"],
        "where_the_rest_goes": _parts(p50["ours"] - p50["raw"]),
        "caller_p50_us": round(p50["caller"], 1),
        "caller_ratio": round(p50["caller"] / p50["raw"], 2),
        "reply_bytes": len(reply),
        "calls": len(took["ours"]),
    }
    print(json.dumps(line), flush=True)


def _measure_idle(agent: socket.socket) -> None:
    ask, pause, took = _caller(agent), Event(), []
    for _ in range(IDLE_CALLS):
        pause.wait(0.001)
        took.append(ask())
    p99_ms = _percentile(took, 0.99) / 1e6
    line = {
        "benchmark": "agent_idle_p99",
        "p50_ms": round(_percentile(took, 0.5) / 1e6, 3),
        "p99_ms": round(p99_ms, 3),
        "target": TARGET_IDLE_MS,
        "met": p99_ms < TARGET_IDLE_MS,
        "calls": len(took),
    }
    print(json.dumps(line), flush=True)


def _percentile(values: list[int], share: float) -> float:
    return float(sorted(values)[min(int(len(values) * share), len(values) - 1)])


# ---- clients


def _same_client(connection: socket.socket, frame: bytes) -> Ask:
    def ask() -> int:
        begin = perf_counter_ns()
        connection.sendall(frame)
        _receive_frame(connection)
        return perf_counter_ns() - begin

    return ask


def _caller(connection: socket.socket) -> Ask:
    decoder = FrameDecoder(MAX_REPLY_BYTES, reply_of)

    def ask() -> int:
        begin = perf_counter_ns()
        connection.sendall(encode(QUESTION.to_json()))
        frames = decoder.feed(connection.recv(65536))
        while not frames:
            frames = decoder.feed(connection.recv(65536))
        return perf_counter_ns() - begin

    return ask


def _receive_frame(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    while data and (len(data) < HEADER_BYTES or len(data) < HEADER_BYTES + int.from_bytes(data[:HEADER_BYTES], "big")):
        data += connection.recv(65536)
    return data


def _answered(agent: socket.socket) -> bytes:
    agent.sendall(encode(QUESTION.to_json()))
    return _receive_frame(agent)


# ---- servers


@contextmanager
def _serving(kind: str) -> Iterator[socket.socket]:
    """A connection to a server in a process of its own."""
    run_dir = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    command = [sys.executable, __file__, "--serve", kind, str(run_dir)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.fsencode(run_dir / f"{kind}.sock"))
            yield connection
    finally:
        server.communicate()
        shutil.rmtree(run_dir)


def _serve_agent(run_dir: Path) -> None:
    with AgentServer(run_dir, "agent", COMMANDS) as server:
        server.publish(_snapshot())
        print("ready", flush=True)
        sys.stdin.read()


def _serve_echo(run_dir: Path) -> None:
    """The least Python that answers frames: one blocking loop on one connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fsencode(run_dir / "echo.sock"))
        listener.listen(1)
        print("ready", flush=True)
        connection, _ = listener.accept()
        with connection:
            while data := _receive_frame(connection):
                connection.sendall(data)


def _snapshot() -> Snapshot:
    now = monotonic()
    return Snapshot(now, WorkerReply.starting("worker-0", "worker"))


# ---- where the rest goes


def _parts(rest_us: float) -> dict[str, float]:
    """Microseconds of each step that the echo does not have; measured alone, with everything in the caches."""
    command, snapshot, now = COMMANDS["block_size"], _snapshot(), monotonic()
    frame, question = encode(QUESTION.to_json()), QUESTION.to_json()
    dispatcher = Dispatcher("worker-0", COMMANDS, FaultCounters(logging.getLogger("bench"), "worker-0"))
    dispatcher.snapshot = snapshot
    decoder = Decoder(MAX_REQUEST_BYTES)
    result: JsonObject = command.answer(snapshot, {}, now)
    encoding = _microseconds(lambda: json_text(result))
    answering = _microseconds(lambda: command.answer(snapshot, {}, now))
    parts = {
        "json decode of the request": _microseconds(lambda: decoder.feed(frame)),
        "checks, look-up, envelope": _microseconds(lambda: dispatcher.reply_to(question, now)) - encoding - answering,
        "the command's answer": answering,
        "json encode of the result": encoding,
    }
    parts["epoll_wait, the loop, and caches that are cold after a switch of process"] = rest_us - sum(parts.values())
    return {name: round(value, 1) for name, value in parts.items()}


def _microseconds(step: Callable[[], object]) -> float:
    return min(Timer(step).repeat(30, 1000)) / 1000 * 1e6


if __name__ == "__main__":
    main()
