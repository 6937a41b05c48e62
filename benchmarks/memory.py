"""How far the processes of a worker grow when one batch is 800 MB: 800 messages of 1 MB, driver heap 512 MB.

A real fleet (`kctl start`) with one worker, default settings; all messages are there before it starts, so they are its
first batch. While it runs, the resident memory of each of its processes is read every 20 ms.

    python -m benchmarks.memory [--messages 800]

Prints one JSON line, `memory`: neither the driver's Python nor an executor's is to grow past 300 MB; `ratio` is the
largest of them against that. Pages that a forked executor shares with its daemon count in full.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from threading import Event, Thread

import psutil
from kafka import KafkaProducer

from benchmarks._fleet import TOPIC, Fleet, progress, running_broker, until
from tests.servers.topics import create_topic

PARTITIONS = 2
MESSAGE_BYTES = 1 << 20
ROOM_BYTES = 4096
"""For key and framing, above the message's own bytes."""
LIMIT_MB = 300
SAMPLE_SECONDS = 0.02
BATCH_SECONDS = 180.0


def main() -> None:
    parser = argparse.ArgumentParser(description="the memory of a worker with an 800 MB batch")
    parser.add_argument("--messages", type=int, default=800)
    messages = parser.parse_args().messages
    largest = str(MESSAGE_BYTES + ROOM_BYTES)
    with running_broker({"message.max.bytes": largest, "replica.fetch.max.bytes": largest}) as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS, {"max.message.bytes": largest})
        _produce(broker.bootstrap_servers, messages)
        with Fleet(place / "fleet", broker.bootstrap_servers, 'engine = "own"') as fleet:
            until(lambda: bool(fleet.worker().get("pid")), "the worker answers")
            peaks = Peaks(fleet.worker()["pid"])
            peaks.start()
            until(lambda: _rows_stored(fleet, peaks) >= messages, "all messages are stored", BATCH_SECONDS)
            until(fleet.is_caught_up, "everything is committed")
            peaks.stop()
            worker = fleet.worker()
    _report(worker["rows_total"], worker["batches_total"], peaks.megabytes)


def _rows_stored(fleet: Fleet, peaks: Peaks) -> int:
    row = fleet.worker()
    if row.get("last_error"):
        raise RuntimeError(f"{row['last_error']}; memory until then: {peaks.megabytes}")
    return int(row.get("rows_total") or 0)


def _produce(bootstrap_servers: str, messages: int) -> None:
    progress(f"producing {messages} messages of {MESSAGE_BYTES} bytes")
    largest = MESSAGE_BYTES + ROOM_BYTES
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, max_request_size=largest)
    for number in range(messages):
        producer.send(TOPIC, os.urandom(MESSAGE_BYTES), partition=number % PARTITIONS).get()
    producer.close()


class Peaks(Thread):
    """Reads the resident memory of a worker's processes until `stop`, and keeps the most that each role has had."""

    def __init__(self, worker_pid: int) -> None:
        super().__init__(name="peaks")
        self.megabytes: Counter[str] = Counter()
        self._worker = psutil.Process(worker_pid)
        self._over = Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            for process in [self._worker, *self._worker.children(recursive=True)]:
                try:
                    role, megabytes = self._role(process), process.memory_info().rss / 1e6
                except psutil.Error:
                    continue
                self.megabytes[role] = max(self.megabytes[role], round(megabytes))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _role(self, process: psutil.Process) -> str:
        if process.pid == self._worker.pid:
            return "driver_python"
        # not by name: for a moment a child of the JVM has all its memory and the name of one of its threads
        return "executor_python" if "kctl_agent.worker.query.daemon" in process.cmdline() else "jvm"


def _report(messages: int, batches: int, megabytes: Counter[str]) -> None:
    python = max(megabytes["driver_python"], megabytes["executor_python"])
    line = {
        "benchmark": "memory",
        "messages": messages,
        "batches": batches,
        **{f"{role}_mb": megabytes[role] for role in ("driver_python", "executor_python", "jvm")},
        "ratio": round(python / LIMIT_MB, 2),
        "target": 1.0,
        "met": python <= LIMIT_MB and batches == 1,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
