"""What grows with the partitions of a topic, beside the batch itself: start, processes at work, questions, a rebalance.

For each number of partitions a new broker, a topic of so many, 1,000 messages a second spread over them, and a fleet of
one worker with an engine, to which a second worker is added.

    python -m benchmarks.partition_growth [--partitions 8 100 400 1000] [--seconds 20]

Prints a JSON line for each, `partition_growth_N`: seconds until the first batch is stored; of the time after it the
seconds of a batch and the share of a core of the master, the worker and the JVM of the engine; milliseconds of
`kctl rpc offset_checker`, `kctl status`, the lag of each partition over HTTP and a scrape, medians as whole requests;
seconds from the command that adds a worker until both have stored a batch of partitions of their own. No target.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any

import psutil

from benchmarks._fleet import TOPIC, Fleet, progress, running_broker, until
from kctl.children import python_module
from kctl.demo.run import Producer
from tests.servers.topics import create_topic

RATE = 1000.0
WARM_UP_SECONDS = 20.0
START_SECONDS = 180.0
ENGINE = """
[engine]
heap = "2g"
"""
QUESTIONS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description="what grows with the partitions of a topic")
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 100, 400, 1000])
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    for partitions in options.partitions:
        line = {"benchmark": f"partition_growth_{partitions}", **measured(partitions, options.seconds)}
        print(json.dumps({**line, "load": round(os.getloadavg()[0], 1)}), flush=True)


def measured(partitions: int, seconds: float) -> dict[str, float]:
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, partitions)
        producer = Producer(broker.bootstrap_servers, TOPIC, partitions, RATE)
        producer.start()
        try:
            began = time.monotonic()
            with Fleet(place / "fleet", broker.bootstrap_servers, ENGINE) as fleet:
                until(lambda: batches(fleet).get("worker-0", 0) > 0, "a batch is stored", START_SECONDS)
                found = {"first_batch_s": round(time.monotonic() - began, 1)}
                Event().wait(WARM_UP_SECONDS)
                found |= at_work(fleet, seconds) | questions(fleet)
                return found | {"rebalance_s": round(rebalance(fleet), 1)}
        finally:
            producer.stop(0)


def batches(fleet: Fleet) -> dict[str, int]:
    """How many each worker has stored."""
    fleet.check()
    answer = fleet.ask("workers")
    rows = answer["rows"] if answer else []
    return {row["name"]: int(row.get("batches_total") or 0) for row in rows if row["kind"] == "worker"}


def at_work(fleet: Fleet, seconds: float) -> dict[str, float]:
    began, before, used = time.monotonic(), batches(fleet)["worker-0"], processor_time(fleet)
    Event().wait(seconds)
    until(lambda: batches(fleet)["worker-0"] > before, "one more batch", START_SECONDS)
    took, stored, now = time.monotonic() - began, batches(fleet)["worker-0"] - before, processor_time(fleet)
    shares = {f"{name}_share": round((now[name] - used[name]) / took, 3) for name in now}
    return {"batch_s": round(took / stored, 2), **shares}


def processor_time(fleet: Fleet) -> dict[str, float]:
    """Seconds so far, of processes of the fleet."""
    master = psutil.Process(about(fleet)["pid"])
    found = {"master": _seconds(master), "worker": 0.0, "jvm": 0.0}
    for process in master.children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            line = " ".join(process.cmdline())
            name = "jvm" if "java" in line.split(" ")[0] else "worker" if "kctl_agent.worker" in line else None
            if name is not None:
                found[name] += _seconds(process)
    return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def about(fleet: Fleet) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fleet.config.parent / "run" / "master.json").read_text(encoding="utf-8"))
    return found


def questions(fleet: Fleet) -> dict[str, float]:
    url = about(fleet)["http_url"]

    def command(*words: str) -> None:
        subprocess.run(
            [*python_module("kctl"), "-c", str(fleet.config), *words], stdout=subprocess.DEVNULL, check=False
        )

    def get(path: str) -> None:
        with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
            answer.read()

    return {
        "rpc_ms": _median(lambda: command("rpc", "offset_checker")),
        "status_ms": _median(lambda: command("status")),
        "lag_ms": _median(lambda: get("/api/v1/lag?limit=1000")),
        "scrape_ms": _median(lambda: get("/metrics")),
    }


def _median(work: Callable[[], None]) -> float:
    taken = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(taken), 1)


def rebalance(fleet: Fleet) -> float:
    began, before = time.monotonic(), batches(fleet)["worker-0"]
    command = [*python_module("kctl"), "-c", str(fleet.config), "scale", "workers=2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    until(lambda: batches(fleet).get("worker-1", 0) > 0, "the new worker stores", START_SECONDS)
    at_that = batches(fleet)["worker-0"]
    until(lambda: batches(fleet)["worker-0"] > max(before, at_that), "the other goes on", START_SECONDS)
    took = time.monotonic() - began
    progress(f"two workers store after {took:.1f} s")
    return took


if __name__ == "__main__":
    main()
