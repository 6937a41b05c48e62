"""Messages per second of one sinker process whose handler does nothing, and whether its memory stays flat.

`python -m kctl_agent.sinker` as the master starts it: with its agent, its guard and its figures. Blocks and batches of
500 messages of 100 bytes. The storages are those of `_storages`: as they are, with 10,000 blocks in flight, with
100,000 dead letters. They take turns, a new process each time; timed is from the return of the handler's first call to
that of its last, so that the start of Python does not count.

Memory: more messages than a sinker holds at a time, put while it works; its resident memory when a tenth of them is
handled, against that at the end.

    python -m benchmarks.sinker [--messages 200000] [--rounds 7] [--memory-messages 1000000]

Prints a JSON line for each. Targets: file 100,000/s, Redis 150,000/s, neither slower than 0.9 of `plain` with blocks in
flight or dead letters; memory at the end at most 1.05 of that after the first tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, perf_counter
from typing import Any

import psutil

from benchmarks._storages import BLOCK, STATES, burden, fill, redis_server
from kctl_agent.message import Message
from kctl_agent.storage import open_storage
from kctl_agent.storage.base import Storage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.redis import RedisStorage

TARGETS = {"file": 100_000.0, "redis": 150_000.0}
FLAT = 0.9
MEMORY_FLAT = 1.05
SHARE = 100_000
"""Of the messages that are put while the memory is watched."""
PLACE_VARIABLE = "KCTL_BENCH_SINKER"
WAIT_SECONDS = 120.0


class Handler:
    """Does nothing; when it is closed it tells how long that took."""

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._count = self._first_count = 0

    def handle(self, messages: list[Message]) -> list[bool]:
        self._last = perf_counter()
        self._count += len(messages)
        if not self._first:
            self._first, self._first_count = self._last, self._count
        return [True] * len(messages)

    def close(self) -> None:
        rate = (self._count - self._first_count) / (self._last - self._first)
        Path(os.environ[PLACE_VARIABLE]).write_text(json.dumps({"count": self._count, "rate": rate}))


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast a sinker is, and how large")
    parser.add_argument("--messages", type=int, default=200_000, help="of one round, in each storage")
    parser.add_argument("--rounds", type=int, default=7, help="0: memory only")
    parser.add_argument("--memory-messages", type=int, default=1_000_000)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with redis_server(place) as url:
            settings = {
                f"{kind}_{state}": storage_settings(kind, state, place, url) for state in STATES for kind in TARGETS
            }
            storages = {name: opened(of_one) for name, of_one in settings.items()}
            for name, storage in storages.items():
                burden(storage, name.partition("_")[2])
            rates: dict[str, list[float]] = {name: [] for name in settings}
            for turn in range(options.rounds):
                for name in list(settings)[:: 1 if turn % 2 else -1]:
                    fill(storages[name], options.messages)
                    rates[name].append(drained(place, settings[name], storages[name], options.messages))
                    print(f"  {name}: {rates[name][-1]:,.0f}/s", file=sys.stderr, flush=True)
            if options.rounds:
                report(rates)
            for kind in TARGETS:
                name = f"{kind}_plain"
                report_memory(kind, memory(place, settings[name], storages[name], options.memory_messages))
    finally:
        shutil.rmtree(place)


def storage_settings(kind: str, state: str, place: Path, url: str) -> dict[str, Any]:
    common = {"mode": kind, "block_messages": BLOCK, "compression": "none", "limit": 0}
    return {**common, "path": str(place / state / "s.sqlite"), "url": url, "namespace": state}


def opened(settings: dict[str, Any]) -> FileStorage | RedisStorage:
    storage = open_storage(settings)
    assert isinstance(storage, FileStorage | RedisStorage)
    return storage


@contextmanager
def sinker(place: Path, storage: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """The process; at the end it is asked to leave, and has done so."""
    settings = {
        "name": "sinker-0", "run_dir": str(place / "run"), "scratch_dir": str(place / "scratch"), "import_dir": ".",
        "handler": "benchmarks.sinker:Handler", "storage": storage, "log_level": "WARNING", "batch_size": BLOCK,
        "batch_wait_seconds": 0.0, "lease_seconds": 60.0, "max_tries": 5, "retry_backoff_seconds": 10.0,
        "handler_timeout_seconds": 60.0, "ordered": False,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "kctl_agent.sinker"],
        stdin=subprocess.PIPE,
        env={**os.environ, PLACE_VARIABLE: str(place / "figures")},
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.stdin.close()
        process.wait()


def drained(place: Path, settings: dict[str, Any], storage: Storage, messages: int) -> float:
    with sinker(place, settings):
        until_empty(storage)
    figures = json.loads((place / "figures").read_text())
    assert figures["count"] == messages, figures
    return float(figures["rate"])


def until_empty(storage: Storage) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while ours(storage):
        assert monotonic() < deadline, "the sinker does not come to an end"
        Event().wait(0.1)


def ours(storage: Storage) -> int:
    """Messages that wait or are in hand, without those of the partition that is leased to others."""
    return sum(of.pending + of.processing for of in storage.stats().partitions if of.partition == 0)


def memory(place: Path, settings: dict[str, Any], storage: Storage, messages: int) -> list[int]:
    """Its resident bytes after each share of so many messages."""
    found = []
    with sinker(place, settings) as process:
        for _ in range(0, messages, SHARE):
            fill(storage, SHARE)
            until_empty(storage)
            found.append(psutil.Process(process.pid).memory_info().rss)
    return found


def report(rates: dict[str, list[float]]) -> None:
    """Medians; a ratio is the median of those of each round, so that it compares what ran close together."""
    for name, found in rates.items():
        kind, _, state = name.partition("_")
        rate = statistics.median(found)
        line: dict[str, object] = {"benchmark": f"sinker_{name}", "messages_per_second": round(rate)}
        line |= {"rounds": len(found), "lowest": round(min(found)), "highest": round(max(found))}
        if state == "plain":
            line |= {"target": TARGETS[kind], "met": rate >= TARGETS[kind]}
        else:
            ratio = statistics.median(one / plain for one, plain in zip(found, rates[f"{kind}_plain"], strict=True))
            line |= {"ratio_to_plain": round(ratio, 2), "target": FLAT, "met": ratio >= FLAT}
        print(json.dumps(line), flush=True)


def report_memory(kind: str, resident: list[int]) -> None:
    after_a_tenth = resident[max(len(resident) // 10 - 1, 0)]
    ratio = resident[-1] / after_a_tenth
    line: dict[str, object] = {"benchmark": f"sinker_memory_{kind}", "messages": len(resident) * SHARE}
    line |= {"bytes_after_a_tenth": after_a_tenth, "bytes_at_the_end": resident[-1], "highest": max(resident)}
    line |= {"ratio": round(ratio, 3), "target": MEMORY_FLAT, "met": ratio <= MEMORY_FLAT}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
