"""What an attached agent costs the application it is attached to: the same batch with and without it, interleaved.

One Spark session reads the same records again and again (`availableNow`, one batch, noop sink), with and without
`kctl_agent.attach` in turns (without, with, with, without, …), so that a machine that becomes slower or faster
meanwhile does so for both. A process of its own asks the agent what a master asks, as often as a master does.

    python -m benchmarks.attached_cost [--runs 20] [--records 2000000]

Prints one JSON line, `attached_cost`: `cost` is how much longer the median batch with is than the one without, and is
to be at most 0.01. `cost_of_pairs` holds the middle of the same of neighbours, and the range in which it lies nineteen
times in twenty, by resampling: a range wider than a hundredth means that the clock of this machine is not exact enough.
`driver_cpu` can: the processor time of the driver's Python, which in this application does nothing but wait, above what
it takes without, as a part of the batch. `jvm_cpu` is the JVM's with, against without.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import kctl_agent
from benchmarks._fleet import TOPIC, produce, progress, running_broker
from kctl.jars.lock import jar_paths
from tests.servers import topics

WARM_UP = 5
RECORD_BYTES = 200
RESAMPLES = 2000
MASTER = """
import itertools, socket, sys, time
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, encode
COMMANDS = ("ping", "workers", "offset_checker", "member_leader", "block_size")
with socket.socket(socket.AF_UNIX) as agent:
    agent.connect(sys.argv[1])
    print("connected", flush=True)
    decoder = Decoder(MAX_REPLY_BYTES)
    for number in itertools.count():
        for command in COMMANDS + (("metadata_brokers", "metadata_topics") if number % 5 == 0 else ()):
            agent.sendall(encode(Request(Role.MASTER, command, wire_method(command), id="1").to_json()))
            while not decoder.feed(agent.recv(65536)):
                pass
        time.sleep(1)
"""
"""One kept connection, everything once a second; what every worker reports alike, every five."""


@dataclass(frozen=True, slots=True)
class Run:
    """One batch, in seconds: by the clock, and of processor time."""

    wall: float
    driver: float
    jvm: float


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of an attached agent")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--records", type=int, default=2_000_000)
    options = parser.parse_args()
    with running_broker() as (broker, folder):
        topics.create_topic(broker.bootstrap_servers, TOPIC, 1)
        produce(broker, options.records, RECORD_BYTES)
        without, with_ = _measured(folder, broker.bootstrap_servers, options.runs)
    print(json.dumps(_stats(without, with_)))


def _measured(folder: Path, servers: str, runs: int) -> tuple[list[Run], list[Run]]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jar_paths("spark"))))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # the broker is a child of ours too
    for _ in range(WARM_UP):
        _batch(spark, servers, folder, jvm)
    without: list[Run] = []
    with_: list[Run] = []
    for number in range(runs):
        for is_attached in (False, True) if number % 2 == 0 else (True, False):
            if is_attached:
                with (
                    kctl_agent.attach(spark, name="report", run_dir=folder / "run"),
                    _asked(folder / "run/report.sock"),
                ):
                    with_.append(_batch(spark, servers, folder, jvm))
            else:
                without.append(_batch(spark, servers, folder, jvm))
        progress(
            f"without {without[-1].wall:.3f} s, with {with_[-1].wall:.3f} s; of it driver {with_[-1].driver:.3f} s"
        )
    spark.stop()
    return without, with_


def _batch(spark: Any, servers: str, folder: Path, jvm: psutil.Process) -> Run:
    checkpoint = tempfile.mkdtemp(prefix="query-", dir=folder)
    driver_before, jvm_before = time.process_time(), _cpu_seconds(jvm)
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    driver, of_jvm = time.process_time() - driver_before, _cpu_seconds(jvm) - jvm_before
    batches = [json.loads(progress.json) for progress in query.recentProgress if progress["numInputRows"]]
    shutil.rmtree(checkpoint, ignore_errors=True)
    return Run(sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000, driver, of_jvm)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _asked(path: Path) -> Iterator[None]:
    """A master's questions, from a process of its own."""
    with subprocess.Popen([sys.executable, "-c", MASTER, str(path)], stdout=subprocess.PIPE) as master:
        assert master.stdout is not None
        master.stdout.readline()
        try:
            yield
        finally:
            master.kill()


def _stats(without: list[Run], with_: list[Run]) -> dict[str, object]:
    wall, wall_with = (statistics.median(run.wall for run in runs) for runs in (without, with_))
    driver, driver_with = (statistics.median(run.driver for run in runs) for runs in (without, with_))
    jvm, jvm_with = (statistics.median(run.jvm for run in runs) for runs in (without, with_))
    pairs = [after.wall / before.wall - 1 for before, after in zip(without, with_, strict=True)]
    chance = random.Random(0)
    middles = sorted(statistics.median(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    low, high = middles[RESAMPLES // 40], middles[-RESAMPLES // 40]
    cost, driver_cpu = wall_with / wall - 1, (driver_with - driver) / wall
    return {
        "benchmark": "attached_cost",
        "runs": len(pairs),
        "without_seconds": round(wall, 4),
        "with_seconds": round(wall_with, 4),
        "cost": round(cost, 4),
        "cost_of_pairs": [round(each, 4) for each in (statistics.median(pairs), low, high)],
        "driver_cpu": round(driver_cpu, 4),
        "jvm_cpu": round(jvm_with / jvm - 1, 4),
        "load": round(os.getloadavg()[0], 1),
        # Where the clock is not exact to a hundredth, processor time decides.
        "met": driver_cpu <= 0.01 and (cost <= 0.01 or low <= 0.01 < high - low),
    }


if __name__ == "__main__":
    main()
