"""What an attached agent costs the application it is attached to: the same batch with and without it, interleaved.

One Spark session reads the same records again and again (`availableNow`, one batch, noop sink), every other time with
`kctl_agent.attach`, a master's questions included: all commands, four times a second.

    python benchmarks/attached_cost.py [--runs 20] [--records 400000]

Prints one JSON line, `attached_cost`: the median batch with is to be at most 1 % longer than the one without. `spread`
is how far the quartiles of the runs without lie apart, so what the figure can tell at all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import kctl_agent
from benchmarks._fleet import TOPIC, produce, running_broker, say
from kctl.demo import topics
from kctl.jars import jar_paths
from kctl.rpc.client import call
from kctl_agent.messages import Request, Role, wire_method

COMMANDS = ("ping", "workers", "offset_checker", "kafka_lag", "member_leader", "block_size")
ASK_EVERY_SECONDS = 0.25
RECORD_BYTES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of an attached agent")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--records", type=int, default=400_000)
    options = parser.parse_args()
    with running_broker() as (broker, folder):
        topics.create_topic(broker.bootstrap_servers, TOPIC, 1)
        produce(broker, options.records, RECORD_BYTES)
        print(json.dumps(_measured(folder, broker.bootstrap_servers, options.runs)))


def _measured(folder: Path, servers: str, runs: int) -> dict[str, object]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jar_paths("spark"))))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for _ in range(5):
        _batch_seconds(spark, servers, folder)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * runs):
        is_attached = bool(number % 2)
        if is_attached:
            with kctl_agent.attach(spark, name="report", run_dir=folder / "run"), _Asking(folder / "run/report.sock"):
                seconds[True].append(_batch_seconds(spark, servers, folder))
        else:
            seconds[False].append(_batch_seconds(spark, servers, folder))
        say(f"{'with' if is_attached else 'without'}: {seconds[is_attached][-1]:.3f} s")
    spark.stop()
    without, with_ = statistics.median(seconds[False]), statistics.median(seconds[True])
    quartiles = statistics.quantiles(seconds[False], n=4)
    return {
        "benchmark": "attached_cost",
        "runs": runs,
        "without_seconds": round(without, 4),
        "with_seconds": round(with_, 4),
        "cost": round(with_ / without - 1, 4),
        "spread": round((quartiles[2] - quartiles[0]) / without, 4),
        "met": with_ <= 1.01 * without,
    }


def _batch_seconds(spark: Any, servers: str, folder: Path) -> float:
    checkpoint = tempfile.mkdtemp(prefix="query-", dir=folder)
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
    batches = [json.loads(progress.json) for progress in query.recentProgress if progress["numInputRows"]]
    shutil.rmtree(checkpoint, ignore_errors=True)
    return float(sum(batch["durationMs"]["triggerExecution"] for batch in batches)) / 1000


class _Asking:
    """A master's questions, from a thread of this process, so that they are in the figure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(ASK_EVERY_SECONDS):
            for command in COMMANDS:
                call(self._path, Request(Role.MASTER, command, wire_method(command)), 2.0)


if __name__ == "__main__":
    main()
