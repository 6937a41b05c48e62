"""10,000 random and mutated frames against a running master: it stays up, small and polite to everybody else."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.rpc.client import call
from kctl_agent.messages import Request, Role
from kctl_agent.wire import MAX_REQUEST_BYTES, encode

pytestmark = pytest.mark.real

FRAMES = 10_000
SEED = 20_260_101
CALL_SECONDS = 5.0

Hostile = Callable[[random.Random], bytes]

VALID = encode(Request(Role.EXTERNAL, "kafka_lag", "onKafkaLag", id="x", params={}, deadline_ms=500).to_json())


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 200))


def random_body(rng: random.Random) -> bytes:
    return framed(rng.randbytes(rng.randrange(0, 200)))


def mutated(rng: random.Random) -> bytes:
    frame = bytearray(VALID)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(frame))
        match rng.randrange(3):
            case 0:
                frame[place] = rng.randrange(256)
            case 1:
                del frame[place]
            case _:
                frame.insert(place, rng.randrange(256))
    return bytes(frame)


def mutated_body(rng: random.Random) -> bytes:
    return framed(mutated(rng)[4:])


def cut(rng: random.Random) -> bytes:
    return VALID[: rng.randrange(1, len(VALID))]


def huge_length(rng: random.Random) -> bytes:
    return rng.randrange(MAX_REQUEST_BYTES + 1, 1 << 32).to_bytes(4, "big") + rng.randbytes(20)


def deep(rng: random.Random) -> bytes:
    depth = rng.randrange(10, 20_000)
    return framed(b'{"params":' + b"[" * depth + b"]" * depth + b"}")


def odd_request(rng: random.Random) -> bytes:
    def odd() -> object:
        return rng.choice(
            [
                None,
                True,
                -1,
                0,
                1,
                2,
                1 << 70,
                0.5,
                "",
                "ping",
                "getPing",
                "__class__",
                "x" * 300,
                [],
                {},
                {"worker": 1},
            ]
        )

    request = {name: odd() for name in ("v", "id", "role", "rpc", "method", "params", "deadline_ms")}
    for name in rng.sample(sorted(request), rng.randrange(0, 7)):
        del request[name]
    return framed(json.dumps(request).encode())


def odd_numbers(rng: random.Random) -> bytes:
    number = rng.choice([b"NaN", b"Infinity", b"1e999", b"-0", b"9" * 5000])
    return framed(b'{"role":0,"rpc":"ping","method":"getPing","deadline_ms":' + number + b"}")


HOSTILE: list[Hostile] = [
    random_bytes,
    random_body,
    mutated,
    mutated_body,
    cut,
    huge_length,
    deep,
    odd_request,
    odd_numbers,
]


def attack(path: Path, rng: random.Random, count: int) -> None:
    """Sends `count` frames, several per connection until it is closed, reading now and then, leaving in every way."""
    sent = 0
    while sent < count:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, suppress(ConnectionError, TimeoutError):
            sock.settimeout(CALL_SECONDS)
            sock.connect(str(path))
            for _ in range(rng.randrange(1, 30)):
                sock.sendall(rng.choice(HOSTILE)(rng))
                sent += 1
                if rng.random() < 0.1:
                    sock.settimeout(0.01)
                    with suppress(TimeoutError):
                        sock.recv(65536)
                    sock.settimeout(CALL_SECONDS)
            if rng.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)


class GoodCaller:
    """Asks two questions again and again while it is entered; keeps how long each answer took."""

    def __init__(self, path: Path) -> None:
        self.took: list[float] = []
        self.wrong: list[object] = []
        self._path = path
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def __enter__(self) -> GoodCaller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _call(self) -> None:
        questions = [
            Request(Role.EXTERNAL, "ping", "getPing", id="good"),
            Request(Role.EXTERNAL, "kafka_lag", "onKafkaLag", id="good"),
        ]
        while not self._is_over.wait(0.005):
            for question in questions:
                started = time.monotonic()
                try:
                    reply = call(self._path, question, CALL_SECONDS)
                    if not reply.ok or reply.id != "good":
                        self.wrong.append(reply)
                except Exception as error:
                    self.wrong.append(error)
                self.took.append(time.monotonic() - started)


def test_ten_thousand_hostile_frames_neither_break_nor_feed_the_master(
    master: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    fleet = master(workers={"count": 1})
    path = fleet.run_dir / "master.sock"
    process = psutil.Process(fleet.process.pid)
    # What is connected, loaded and cached once is not growth.
    eventually(lambda: b'part="committed"' in _metrics(fleet.about["http_url"]))
    attack(path, random.Random(SEED), FRAMES // 10)
    eventually(lambda: _descriptors(process) < 30)
    descriptors, resident = _descriptors(process), process.memory_info().rss

    with GoodCaller(path) as good:
        attack(path, random.Random(SEED + 1), FRAMES)

    took = sorted(good.took)
    p50, p99 = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
    growth = process.memory_info().rss - resident
    print(f"good calls {len(took)}, p50 {p50:.1f} ms, p99 {p99:.1f} ms; memory {growth / 2**20:+.1f} MiB")
    assert good.wrong == []
    assert took[-1] < CALL_SECONDS / 2
    eventually(lambda: _descriptors(process) <= descriptors + 2, 10, "descriptors have leaked")
    assert growth < 16 * 2**20
    assert fleet.status()["worker-0"]["restarts"] == 0
    assert "Traceback" not in fleet.log.read_text()
    assert fleet.stop() == 0


def _metrics(url: str) -> bytes:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
        body: bytes = response.read()
        return body


def _descriptors(process: psutil.Process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))
