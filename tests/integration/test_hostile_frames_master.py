"""10,000 random and mutated frames against a running master: it stays up, small and polite to everybody else."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest

from kctl.rpc.client import call
from kctl.rpc.reply import Reply
from kctl_agent.rpc.messages import Request, Role
from kctl_agent.rpc.wire import encode
from tests.conftest import eventually
from tests.hostile import attack
from tests.meanwhile import GoodCaller

pytestmark = pytest.mark.real

FRAMES = 10_000
SEED = 20_260_101
CALL_SECONDS = 5.0

VALID = encode(Request(Role.EXTERNAL, "describe", "getDescribe", id="x", params={}, deadline_ms=500).to_json())


@pytest.mark.shows("10,000 hostile frames do not harm the master either")
def test_ten_thousand_hostile_frames_neither_break_nor_feed_the_master(master: Callable[..., Any]) -> None:
    fleet = master(workers={"count": 1})
    path = fleet.run_dir / "master.sock"
    process = psutil.Process(fleet.process.pid)
    # What is connected, loaded and cached once is not growth.
    eventually(lambda: b'part="committed"' in _metrics(fleet.about["http_url"]))
    attack(path, VALID, SEED, FRAMES)
    eventually(lambda: _descriptors(process) < 30)
    descriptors, resident = _descriptors(process), process.memory_info().rss

    def ask(rpc: str, method: str) -> Reply | None:
        reply = call(path, Request(Role.EXTERNAL, rpc, method, id="good"), CALL_SECONDS)
        return None if reply.ok and reply.id == "good" else reply

    asks = (partial(ask, "ping", "getPing"), partial(ask, "kafka_lag", "onKafkaLag"))
    with GoodCaller(*asks, pause_seconds=0.005) as good:
        attack(path, VALID, SEED + 1, FRAMES)

    took = sorted(good.took)
    p50, p99 = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
    growth = process.memory_info().rss - resident
    print(f"good calls {len(took)}, p50 {p50:.1f} ms, p99 {p99:.1f} ms; memory {growth / 2**20:+.1f} MiB")
    assert good.wrong == []
    assert took[-1] < CALL_SECONDS / 2
    eventually(lambda: _descriptors(process) <= descriptors + 2, what="descriptors have leaked")
    assert growth < 16 * 2**20
    assert fleet.status()["worker-0"]["restarts"] == 0
    assert "Traceback" not in fleet.log.read_text()
    assert fleet.stop() == 0


def _metrics(url: str) -> bytes:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        body: bytes = response.read()
        return body


def _descriptors(process: psutil.Process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))
