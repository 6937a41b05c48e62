"""During a long batch the agent answers at once, and the lag grows."""

from __future__ import annotations

import socket
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, encode
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually

CALLS = 1000


def total_lag(fleet: Fleet) -> int:
    answer = fleet.ask("kafka_lag")
    return int(answer["total"] or 0) if answer else 0


def held(fleet: Fleet) -> dict[str, Any] | None:
    row = fleet.workers().get("worker-0", {})
    return row if (row.get("batch_running_seconds") or 0) > 1 else None


def call_times(fleet: Fleet) -> list[float]:
    times = []
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(str(fleet.directory / "run" / "worker-0.sock"))
        decoder = Decoder(MAX_REPLY_BYTES)
        for number in range(CALLS):
            request = Request(
                id=str(number),
                role=Role.MASTER,
                rpc="offset_checker",
                method=wire_method("offset_checker"),
                params={},
                deadline_ms=None,
            )
            began = time.perf_counter()
            agent.sendall(encode(request.to_json()))
            replies: list[dict[str, Any]] = []
            while not replies:
                replies = decoder.feed(agent.recv(65536))
            times.append(time.perf_counter() - began)
            assert replies[0]["ok"]
    return times


def test_the_agent_answers_in_a_batch(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("KCTL_SLOW_UNTIL", str(tmp_path / "go on"))
    fleet = make_fleet(workers=1, partitions=1, workers_more='transform = "tests.acceptance.transforms:slow"')
    fleet.start("worker-0")
    fleet.send(100)
    eventually(lambda: held(fleet), START_SECONDS, "a batch is being held")

    first = total_lag(fleet)
    fleet.send(300)
    eventually(lambda: total_lag(fleet) >= first + 300, what="the lag grows by what was produced")
    times = sorted(call_times(fleet))
    began = time.monotonic()
    shown = fleet.kctl("rpc", "offset_checker", exit_code=None)
    seconds = time.monotonic() - began

    still = fleet.workers()["worker-0"]
    assert still["batch_running_seconds"] is not None, "all of this happened inside one batch"
    assert still["batches_total"] == 0
    assert seconds < 2, "the command line answers at once"
    assert str(fleet.topic) in shown.stdout
    p99 = times[int(CALLS * 0.99)]
    print(f"agent calls during a batch: p50 {statistics.median(times) * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms")
    # `benchmarks/agent_under_load.py` measures the time: on a busy machine a call waits for a processor.
    assert (statistics.median(times) < 0.05, p99 < 1) == (True, True), "nobody waits for the batch"
    (tmp_path / "go on").touch()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the held batch and what came after it are committed")
    assert fleet.stored_once() == 400
