"""Messages per second of one sinker process whose handler does nothing, and whether its memory stays flat.

`python -m kctl_agent.sinker` as the master starts it: with its agent, its guard and its stats. Blocks and batches of
500 messages of 100 bytes. The storages are those of `_storages`: as they are, with 10,000 blocks in flight, with
100,000 dead letters. Each has a process of its own; all but one are stopped (SIGSTOP), and they take turns of a part of
a second, so that whatever else the machine does falls on each. Timed is from the handler's first call of a turn to its
last; beside it the processor time that the process took, which other work on the machine does not change as much.

Memory: more messages than a sinker holds at a time, put while it works; its resident memory when a tenth of them is
handled, against that at the end.

    python -m benchmarks.sinker [--messages 50000] [--rounds 20] [--memory-messages 1000000]

Prints a JSON line for each. Targets: file 100,000/s, Redis 150,000/s, neither slower than 0.9 of `plain` with blocks in
flight or dead letters; memory at the end at most 1.05 of that after the first tenth.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic, perf_counter, process_time
from typing import Any

import psutil

from benchmarks._storages import BLOCK, STATES, burden, fill, redis_server
from kctl.children import python_module
from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.redis import RedisStorage

TARGETS = {"file": 100_000.0, "redis": 150_000.0}
FLAT = 0.9
MEMORY_FLAT = 1.05
SHARE = 100_000
"""Of the messages that are put while the memory is watched."""
RATES_VARIABLE = "KCTL_BENCH_RATES"
TURN_VARIABLE = "KCTL_BENCH_TURN"
WAIT_SECONDS = 120.0


class Handler:
    """Does nothing; after each turn of so many messages it writes down how many it was given per second."""

    def __init__(self) -> None:
        self._turn = int(os.environ[TURN_VARIABLE])
        self._count = self._first_count = 0
        self._first = self._first_used = 0.0

    def handle(self, messages: list[Message]) -> list[bool]:
        now = perf_counter()
        if not self._count:
            self._first, self._first_used, self._first_count = now, process_time(), len(messages)
        self._count += len(messages)
        if self._count >= self._turn:
            count, used = self._count - self._first_count, process_time() - self._first_used
            with Path(os.environ[RATES_VARIABLE]).open("a") as rates:
                print(self._count, count / (now - self._first), used / count * 1e6, file=rates)
            self._count = 0
        return [True] * len(messages)


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages per second, and microseconds of the process's processor time for each message."""

    rate: float
    used: float


class Sinker:
    """A sinker's process on a storage of its own."""

    def __init__(self, place: Path, name: str, storage: dict[str, Any], turn: int) -> None:
        """`turn`: messages after which its handler prints its rate, a multiple of a block."""
        self._rates = place / f"{name}.rates"
        self._turn = turn
        self.storage = opened(storage)
        settings = {
            "name": name, "owner": name, "run_dir": str(place / "run"), "scratch_dir": str(place / name),
            "import_dir": ".", "handler": "benchmarks.sinker:Handler", "storage": storage, "log_level": "WARNING",
            "batch_size": BLOCK, "batch_wait_seconds": 0.0, "lease_seconds": 60.0, "max_tries": 5,
            "retry_backoff_seconds": 10.0, "handler_timeout_seconds": 60.0, "ordered": False,
        }  # fmt: skip
        self._process = subprocess.Popen(
            python_module("kctl_agent.sinker"),
            stdin=subprocess.PIPE,
            stdout=sys.stderr,  # its log
            env={**os.environ, RATES_VARIABLE: str(self._rates), TURN_VARIABLE: str(turn)},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()

    def turn(self) -> Turn:
        """Fill its storage while it is stopped, and let it work until the storage is empty."""
        fill(self.storage, self._turn)
        self._process.send_signal(signal.SIGCONT)
        until_empty(self.storage)
        self.stop()
        count, rate, used = self._rates.read_text().splitlines()[-1].split()
        assert int(count) == self._turn, count
        return Turn(float(rate), float(used))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    @property
    def resident_bytes(self) -> int:
        found: int = psutil.Process(self._process.pid).memory_info().rss
        return found

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast a sinker is, and how large")
    parser.add_argument("--messages", type=int, default=50_000, help="of one turn, in each storage")
    parser.add_argument("--rounds", type=int, default=20, help="0: memory only")
    parser.add_argument("--memory-messages", type=int, default=1_000_000)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with redis_server(place) as url:
            settings = {
                f"{kind}_{state}": storage_settings(kind, state, place, url) for state in STATES for kind in TARGETS
            }
            for name, of_one in settings.items():
                burden(opened(of_one), name.partition("_")[2])
            if options.rounds:
                report(in_turns(place, settings, options.messages, options.rounds))
            for kind in TARGETS:
                report_memory(kind, memory(place, settings[f"{kind}_plain"], options.memory_messages))
    finally:
        shutil.rmtree(place)


def in_turns(place: Path, settings: Mapping[str, dict[str, Any]], messages: int, rounds: int) -> dict[str, list[Turn]]:
    """Each in each round, there and back, without the first round."""
    turns: dict[str, list[Turn]] = {name: [] for name in settings}
    with ExitStack() as stack:
        sinkers = {name: Sinker(place, name, of_one, messages) for name, of_one in settings.items()}
        for sinker in sinkers.values():
            stack.callback(sinker.leave)
            sinker.stop()
        for turn in range(rounds + 1):
            for name in list(sinkers)[:: 1 if turn % 2 else -1]:
                turns[name].append(sinkers[name].turn())
            print("  ", {name: round(of_one[-1].rate) for name, of_one in turns.items()}, file=sys.stderr, flush=True)
    return {name: found[1:] for name, found in turns.items()}


def storage_settings(kind: str, state: str, place: Path, url: str) -> dict[str, Any]:
    common = {"mode": kind, "block_messages": BLOCK, "compression": "lz4", "limit": 0}
    return {**common, "path": str(place / state / "s.sqlite"), "url": url, "namespace": state}


def opened(settings: dict[str, Any]) -> FileStorage | RedisStorage:
    storage = open_storage(settings)
    assert isinstance(storage, FileStorage | RedisStorage)
    return storage


def until_empty(storage: Storage) -> None:
    deadline = monotonic() + WAIT_SECONDS
    while ours(storage):
        assert monotonic() < deadline, "the sinker does not come to an end"
        Event().wait(0.1)


def ours(storage: Storage) -> int:
    """Messages that wait or are in flight, without those of the partition that is leased to others."""
    return sum(of.pending + of.processing for of in storage.stats().partitions if of.partition == 0)


def memory(place: Path, settings: dict[str, Any], messages: int) -> list[int]:
    """Its resident bytes after each share of so many messages, which it finds one after another."""
    found = []
    sinker = Sinker(place, "memory", settings, SHARE)
    try:
        for _ in range(0, messages, SHARE):
            fill(sinker.storage, SHARE)
            until_empty(sinker.storage)
            found.append(sinker.resident_bytes)
    finally:
        sinker.leave()
    return found


def report(turns: dict[str, list[Turn]]) -> None:
    """Medians; a ratio is the median of those of each round, so that it compares what ran close together."""
    for name, found in turns.items():
        kind, _, state = name.partition("_")
        rates = [turn.rate for turn in found]
        rate = statistics.median(rates)
        line: dict[str, object] = {"benchmark": f"sinker_{name}", "messages_per_second": round(rate)}
        line |= {"rounds": len(found), "lowest": round(min(rates)), "highest": round(max(rates))}
        line |= {"processor_us_per_message": round(statistics.median(turn.used for turn in found), 2)}
        if state == "plain":
            line |= {"target": TARGETS[kind], "met": rate >= TARGETS[kind]}
        else:
            pairs = list(zip(found, turns[f"{kind}_plain"], strict=True))
            ratio = statistics.median(one.rate / plain.rate for one, plain in pairs)
            of_processor = statistics.median(plain.used / one.used for one, plain in pairs)
            line |= {"ratio_to_plain": round(ratio, 2), "ratio_of_processor_time": round(of_processor, 2)}
            line |= {"target": FLAT, "met": ratio >= FLAT}
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
