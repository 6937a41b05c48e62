"""How long it takes from nothing until each worker of a new fleet has stored its first batch.

What `kctl demo` does: a real broker, a topic of 8 partitions, a producer of 2,000 messages a second, and a fleet that
is started beside it. One fleet for each number of workers, each on a new broker.

    python -m benchmarks.first_batch [--rounds 1] [--workers 1 2]

Prints JSON lines, one for each number of workers, `first_batch_of_N`: seconds since the broker was started at which a
step was over, medians. `broker`: it answers. Of the workers, by the clock of their logs, `session`: JVM and Spark
session are there; `joined`: partitions are assigned; `query`: the query is started; and by their agents `stored`: a
batch is stored. `first_` is the first worker's, `last_` the last one's. `cpu_seconds` is the processor time of all
processes of the fleet when the first batch is stored, `jvm_cpu_seconds` that of its JVMs alone: they show more than the
clock where other work is done beside it. No target.
"""

import argparse
import contextlib
import json
import re
import shutil
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

import psutil

from benchmarks._fleet import START_SECONDS, progress, until
from kctl.demo.fleet import DemoFleet, lay_out
from kctl.demo.run import Producer
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.topics import create_topic

TOPIC, PARTITIONS, RATE = "demo", 8, 2000.0
STEPS = {"session": "-> joining", "joined": "-> assigned", "query": "reads "}
"""What a worker's log has when it has come to a step."""
LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) \w+ \S+ (?P<text>.*)")


def main() -> None:
    parser = argparse.ArgumentParser(description="the time until a new fleet has stored its first batch")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    for workers in options.workers:
        taken = [run(workers) for _ in range(options.rounds)]
        medians = {step: round(statistics.median(each[step] for each in taken), 2) for step in taken[0]}
        line = {"benchmark": "first_batch_of_" + str(workers), **medians, "rounds": options.rounds}
        print(json.dumps(line), flush=True)


def run(workers: int) -> dict[str, float]:
    """Seconds of each step in a fleet of so many workers."""
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    try:
        lay_out(place)
        began = time.time()
        with KafkaBroker(place / "broker") as broker:
            at = {"broker": time.time() - began}
            create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
            fleet = DemoFleet(place)
            fleet.configure(bootstrap_servers=broker.bootstrap_servers, topic=TOPIC, workers=workers)
            producer = Producer(broker.bootstrap_servers, TOPIC, PARTITIONS, RATE)
            fleet.start()
            producer.start()
            try:
                stored = _stored(fleet, workers, began)
            finally:
                producer.stop(0)
                fleet.stop()
        steps = [steps_of(place / "logs" / f"worker-{number}.log", began) for number in range(workers)]
        for step in STEPS:
            at |= {f"first_{step}": min(of[step] for of in steps), f"last_{step}": max(of[step] for of in steps)}
        progress(", ".join(f"{step} {seconds:.1f}" for step, seconds in (at | stored).items()))
        return at | stored
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _stored(fleet: DemoFleet, workers: int, began: float) -> dict[str, float]:
    """When the first and the last of them reported its first batch, and what had been spent at the first."""
    at: dict[str, float] = {}
    spent: dict[str, float] = {}

    def all_have() -> bool:
        fleet.check()
        answer = fleet.ask("workers")
        for row in answer["rows"] if answer else ():
            if row["batches_total"]:
                at.setdefault(row["name"], time.time() - began)
        if at and not spent:
            spent.update(_spent(fleet))
        return len(at) == workers

    until(all_have, f"{workers} workers have stored a batch", START_SECONDS * workers)
    return {"first_stored": min(at.values()), "last_stored": max(at.values()), **spent}


def _spent(fleet: DemoFleet) -> dict[str, float]:
    """Processor time of the master and all that it has started, the JVMs also apart."""
    master = psutil.Process(fleet.pid)
    spent = {"cpu_seconds": 0.0, "jvm_cpu_seconds": 0.0}
    for process in (master, *master.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times, is_jvm = process.cpu_times(), process.name() == "java"
            seconds = times.user + times.system
            spent["cpu_seconds"] += seconds + times.children_user + times.children_system
            spent["jvm_cpu_seconds"] += seconds if is_jvm else 0.0
    return spent


def steps_of(log: Path, began: float) -> dict[str, float]:
    """When the worker came to each step for the first time."""
    at: dict[str, float] = {}
    for line in log.read_text().splitlines():
        found = LINE.match(line)
        for step, words in STEPS.items():
            if found and words in found["text"]:
                at.setdefault(step, datetime.fromisoformat(found["at"]).timestamp() - began)
    return at


if __name__ == "__main__":
    main()
