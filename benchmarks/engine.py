"""Workers that share one Spark engine beside workers with a driver each: starts, memory, throughput.

Real fleets of the same number of workers, on brokers of their own, by turns; two partitions for each worker.

    python -m benchmarks.engine [--workers 2] [--rounds 1] [--records 200000] [--kills 3]

Prints JSON lines for each number of workers, medians of both ways; `ratio` is shared to own but for the throughput:

- `first_batch_of_N`: seconds from the start of the fleet until each worker has stored a batch;
- `memory_of_N`: bytes of all processes of the fleet but the master, as the supervisor measures them (what forks share
  counts once), a minute after each worker has stored a backlog; at most a third with 8 workers;
- `memory_under_load_of_N`: the same at the end of the backlog;
- `kill_to_reading_of_N`: seconds from kill -9 of a worker until its successor has stored a batch; at most a quarter;
- `throughput_of_N`: records per second of a backlog, at least 1.0 of `own`.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._fleet import START_SECONDS, TOPIC, Fleet, produce, progress, until
from kctl.children import python_module
from kctl.demo.run import Producer
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

WAYS = ("shared", "own")
PARTITIONS_EACH = 2
RATE = 500.0
REST_SECONDS = 60.0
RECORD_BYTES = 200
TARGETS: Mapping[str, Callable[[float, int], bool]] = {
    "kill_to_reading": lambda ratio, _: ratio <= 0.25,
    "memory": lambda ratio, workers: ratio <= 1 / 3 or workers < 8,
    "throughput": lambda ratio, _: ratio >= 1.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="workers in one engine beside workers with a driver each")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--records", type=int, default=200_000, help="of the backlog, for each worker")
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    for workers in options.workers:
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for turn in range(options.rounds):
            for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                found[way].append(_measured(way, workers, options.records, options.kills))
                progress(f"{way}, {workers} workers: {found[way][-1]}")
        for what in found["own"][0]:
            _report(what, workers, {way: statistics.median(each[what] for each in found[way]) for way in WAYS})


def _report(what: str, workers: int, medians: Mapping[str, float]) -> None:
    ratio = medians["shared"] / medians["own"]
    is_met = TARGETS.get(what)
    line = {
        "benchmark": f"{what}_of_{workers}",
        **{way: round(medians[way], 2) for way in WAYS},
        "ratio": round(ratio, 2),
        **({} if is_met is None else {"met": is_met(ratio, workers)}),
    }
    print(json.dumps(line), flush=True)


def _measured(way: str, workers: int, records: int, kills: int) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        with KafkaBroker(place / "broker") as broker:
            create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS_EACH * workers)
            settings = f'engine = "{way}"\nbackoff_min_seconds = 0.1\n'
            fleet = Fleet(place / "fleet", broker.bootstrap_servers, settings)
            text = fleet.config.read_text().replace("count = 1\n", f"count = {workers}\n")
            fleet.config.write_text(text.replace("[kafka]\n", "[kafka]\nstatic_membership = true\n"))
            return _of_fleet(fleet, broker, workers, records, kills)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _of_fleet(fleet: Fleet, broker: KafkaBroker, workers: int, records: int, kills: int) -> dict[str, float]:
    producer = Producer(broker.bootstrap_servers, TOPIC, PARTITIONS_EACH * workers, RATE * workers)
    producer.start()
    began = time.monotonic()
    with fleet:
        until(lambda: len(_batches(fleet)) == workers, "each worker has stored a batch", START_SECONDS * workers)
        first_batch = time.monotonic() - began
        took = [_killed(fleet, f"worker-{number % workers}") for number in range(kills)]
        producer.stop(0)
        until(fleet.is_caught_up, "everything is stored", START_SECONDS * workers)
        throughput = _of_backlog(fleet, broker, records * workers)
        memory_under_load = _memory(fleet)
        threading.Event().wait(REST_SECONDS)
        return {
            "first_batch": first_batch,
            "kill_to_reading": statistics.median(took),
            "throughput": throughput,
            "memory": _memory(fleet),
            "memory_under_load": memory_under_load,
        }


def _killed(fleet: Fleet, name: str) -> float:
    """Seconds until the next process of this name has stored a batch."""
    [pid] = [row["pid"] for row in _rows(fleet) if row["name"] == name]
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    until(
        lambda: _batches(fleet).get(name, (pid, 0))[0] != pid, f"{name} stores again", START_SECONDS * len(_rows(fleet))
    )
    return time.monotonic() - killed


def _of_backlog(fleet: Fleet, broker: KafkaBroker, records: int) -> float:
    """Records a second, of so many that are there already when the fleet begins to read."""
    _operate(fleet, "pause", "--all")
    produce(broker, records, RECORD_BYTES)
    _operate(fleet, "resume", "--all")
    began = time.monotonic()
    until(lambda: not fleet.is_caught_up(), "the brokers have been asked", START_SECONDS)
    until(fleet.is_caught_up, "the backlog is stored", 10 * START_SECONDS)
    return records / (time.monotonic() - began)


def _memory(fleet: Fleet) -> float:
    return float(sum(row["supervisor"]["resident_bytes"] or 0 for row in _rows(fleet)))


def _operate(fleet: Fleet, *words: str) -> None:
    """As an operator does; it returns when it is carried out."""
    command = [*python_module("kctl"), "-c", str(fleet.config), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _rows(fleet: Fleet) -> list[dict[str, Any]]:
    fleet.check()
    answer = fleet.ask("workers")
    return list(answer["rows"]) if answer else []


def _batches(fleet: Fleet) -> dict[str, tuple[int, int]]:
    """Of workers that have stored a batch: their pid, and how many."""
    return {
        row["name"]: (row["pid"], row["batches_total"])
        for row in _rows(fleet)
        if row["kind"] == "worker" and row["batches_total"]
    }


if __name__ == "__main__":
    main()
