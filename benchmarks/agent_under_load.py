"""How long the agent of a worker takes to answer while the worker ingests at full speed, and at rest afterwards.

A real fleet with one worker, default settings, and a backlog of millions of records. This process asks the worker's own
agent for `offset_checker` over one connection, every 2 ms, from the first stored batch until the reply itself shows
that nothing remains; then 1,000 times more when the worker has nothing to do. Timed from before the request is encoded
until the reply is parsed. Broker, JVM, executors, master, worker and this process share the cores of the machine.

    python -m benchmarks.agent_under_load [--records 5000000] [--engine own]

Prints JSON lines: `agent_under_load_p99` (at most 20 ms), `agent_under_load_p50` (1 ms), `agent_at_rest_p99` (1 ms);
`ratio` is the number against that. A fleet at rest takes about 10 % of two cores: `machine_busy_percent` far above that
means that something else ran.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from benchmarks._fleet import TOPIC, WORKER, Fleet, produce, progress, running_broker, until
from kctl.rpc.client import Reply, reply_of
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, FrameDecoder, encode
from tests.servers.topics import create_topic

PARTITIONS = 4
RECORD_BYTES = 200
PAUSE_SECONDS = 0.002
CALLS_AT_REST = 1000
QUIET_PERCENT, QUIET_TRIES = 20, 60
REST_SECONDS = 5.0
"""After the last commit, until the worker has reported its stored offsets and published what it knows."""


def main() -> None:
    parser = argparse.ArgumentParser(description="the agent's answers while its worker works")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--engine", choices=["shared", "own"], default="shared")
    options = parser.parse_args()
    records = options.records
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        produce(broker, records, RECORD_BYTES)
        with Fleet(place / "fleet", broker.bootstrap_servers, f'engine = "{options.engine}"\n') as fleet:
            until(lambda: fleet.rows_stored() > 0, "a batch is stored")
            with Asker(fleet.directory / "run" / f"{WORKER}.sock") as agent:
                began, before = time.monotonic(), fleet.rows_stored()
                busy = _while_it_lags(agent)
                rows_per_second = (fleet.rows_stored() - before) / (time.monotonic() - began)
                until(fleet.is_caught_up, "everything is committed")
                Event().wait(REST_SECONDS)
                _wait_for_a_quiet_machine()
                psutil.cpu_percent()
                rest = [agent.ask()[0] for _ in range(CALLS_AT_REST) if not Event().wait(PAUSE_SECONDS)]
                machine_percent = round(psutil.cpu_percent())
    _report("agent_under_load_p99", busy, 0.99, 20.0, rows_per_second=round(rows_per_second))
    _report("agent_under_load_p50", busy, 0.5, 1.0, rows_per_second=round(rows_per_second))
    _report("agent_at_rest_p99", rest, 0.99, 1.0, machine_busy_percent=machine_percent)


def _wait_for_a_quiet_machine() -> None:
    """At rest means that nothing else takes the cores; given up after a while, and then it shows in the line."""
    for _ in range(QUIET_TRIES):
        if psutil.cpu_percent(interval=1.0) < QUIET_PERCENT:
            return
        progress("waiting for the machine to be quiet")


def _while_it_lags(agent: Asker) -> list[float]:
    progress("asking while the worker ingests")
    times: list[float] = []
    while True:
        seconds, rows = agent.ask()
        if rows and all(row["position"] is not None and row["position"] == row["end"] for row in rows):
            return times
        times.append(seconds)
        Event().wait(PAUSE_SECONDS)


class Asker:
    """One connection to an agent, kept open."""

    def __init__(self, path: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        self._decoder = FrameDecoder(MAX_REPLY_BYTES, reply_of)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self) -> tuple[float, list[dict[str, Any]]]:
        """Seconds, and the rows of the reply."""
        began = time.perf_counter()
        question = Request(Role.MASTER, "offset_checker", wire_method("offset_checker"), id="bench")
        self._connection.sendall(encode(question.to_json()))
        frames: list[Reply] = []
        while not frames:
            frames = self._decoder.feed(self._connection.recv(65536))
        rows: list[dict[str, Any]] = frames[0].result["rows"]
        seconds = time.perf_counter() - began
        return seconds, rows


def _report(name: str, seconds: list[float], share: float, target_ms: float, **more: int) -> None:
    taken = sorted(seconds)
    value = taken[min(int(len(taken) * share), len(taken) - 1)] * 1000
    line = {"benchmark": name, "ms": round(value, 3), "target_ms": target_ms, "largest_ms": round(taken[-1] * 1000, 2)}
    line |= {"calls": len(taken), **more, "ratio": round(value / target_ms, 2), "target": 1.0}
    print(json.dumps(line | {"met": value < target_ms}), flush=True)


if __name__ == "__main__":
    main()
