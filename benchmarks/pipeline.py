"""Rows per second from Kafka into each storage, against two sinks that store nothing, in one streaming query.

Session, source, selected columns and put are the worker's own code (`kctl_agent.worker.pipeline`), with its default
settings but for the size of a batch. The batches of the one query go to the sinks in turns, so that whatever else the
machine does falls on each:

- `noop`: Spark's own sink that drops rows inside the JVM;
- `drop`: a `mapInArrow` that drops what it gets: the limit of any sink in Python;
- `file`, `redis`: what a worker does with a batch; Redis is set as docs/storage.md says;
- `redis_everysec`: the same with `appendfsync everysec`, to which Redis itself is set where nobody says anything.

Timed is the inside of the `foreachBatch` callback. What Spark does around it (planning, two log writes) costs each of
them the same and would only bring them closer together.

    python -m benchmarks.pipeline [--rounds 7] [--records 400000] [--storage file redis redis_everysec]

Prints JSON lines from one run: `put_to_drop` is to be at least 0.9, `put_to_noop` at least 0.5; for Redis at least 0.8,
`put_redis_to_drop` with an append-only file that is synced with each put and `put_redis_everysec_to_drop`. `ratio` is
that of the medians; it must hold for the means (`ratio_of_means`) as well, because what only comes with every third
batch or so a median does not see. The file storage copies its write-ahead log in a thread after the put, which falls on
the batch after it: `noop`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psutil
from kafka import TopicPartition

from benchmarks._fleet import TOPIC, WORKER, produce, running_broker, say, write_config
from benchmarks._storages import redis_server
from kctl.config import load
from kctl.demo.topics import create_topic
from kctl.jars import jar_paths
from kctl.master.launch import worker_settings
from kctl_agent.storage import open_storage
from kctl_agent.storage.base import Mark, Storage
from kctl_agent.worker import pipeline as worker
from kctl_agent.worker.put import SELECTED
from kctl_agent.worker.settings import WorkerSettings, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 2
RECORD_BYTES = 200
WARM_UP_ROUNDS = 5
"""The JVM compiles what it runs often: the third round is still half as slow again as the sixth."""
LINES = {"file": "put_to_", "redis": "put_redis_to_", "redis_everysec": "put_redis_everysec_to_"}
TARGETS = {"file": {"drop": 0.9, "noop": 0.5}, "redis": {"drop": 0.8}, "redis_everysec": {"drop": 0.8}}
APPENDFSYNC = {"redis": "always", "redis_everysec": "everysec"}


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of storing what comes from Kafka")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=400_000, help="of one batch")
    parser.add_argument("--storage", nargs="+", choices=sorted(TARGETS), default=sorted(TARGETS))
    options = parser.parse_args()
    batches = (WARM_UP_ROUNDS + options.rounds) * (2 + len(options.storage))
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        # one batch more than is measured: Spark shares a batch among the partitions and may round it down
        produce(broker, (batches + 1) * options.records, RECORD_BYTES)
        os.sync()  # or the disk would write the broker's gigabytes beside the storages
        config = write_config(place, broker.bootstrap_servers, f"max_records_per_batch = {options.records}")
        jars = [str(jar) for jar in jar_paths("spark")]
        settings = parse(json.dumps(worker_settings(load(config, {}), WORKER, jars)))
        with ExitStack() as stack:
            storages = {}
            for kind in sorted(options.storage, reverse=True):
                more = {}
                if kind in APPENDFSYNC:
                    url = stack.enter_context(redis_server(place, APPENDFSYNC[kind]))
                    more = {"mode": "redis", "url": url, "namespace": "bench"}
                storages[kind] = open_storage({**settings.storage, **more})
            seconds = _measure(settings, storages, batches)
    for kind in options.storage:
        _report(seconds, options.records, kind)


def _measure(settings: WorkerSettings, storages: Mapping[str, Storage], batches: int) -> dict[str, list[float]]:
    settings.scratch_dir.mkdir(parents=True)
    for storage in storages.values():
        storage.prepare()
        storage.place_marks([Mark(TOPIC, number, None, 0, None) for number in range(PARTITIONS)])
    sources = {TopicPartition(TOPIC, number): worker.Source(0, None) for number in range(PARTITIONS)}
    checkpoint = Path(tempfile.mkdtemp(dir=settings.scratch_dir))
    pipeline = worker.Pipeline(settings, next(iter(storages.values())), dict, lambda _: None)
    pipeline.open()
    runs = {kind: worker._Run(storage, sources, checkpoint, pipeline) for kind, storage in storages.items()}
    turns = Turns(runs, batches)
    try:
        query = (
            pipeline._source(sources)
            .writeStream.foreachBatch(turns)
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    finally:
        pipeline.close()
    return turns.seconds


class Turns:
    """A `foreachBatch` callback that hands batch 0 to the first sink, batch 1 to the second, and so on."""

    def __init__(self, runs: Mapping[str, worker._Run], batches: int):
        """`runs` of the storages, of which the last is that whose put works on afterwards."""
        self.seconds: dict[str, list[float]] = {sink: [] for sink in ("noop", "drop", *runs)}
        self._runs = runs
        self._batches = batches
        self._ends = next(iter(runs.values())).positions

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id >= self._batches:
            return
        starts, self._ends = self._ends, next(iter(self._runs.values()))._ends(batch_id)
        sink = list(self.seconds)[batch_id % len(self.seconds)]
        run = self._runs.get(sink)
        if run is not None:  # the marks and the worker's positions have not seen the batches before
            run._storage.advance_marks({(tp.topic, tp.partition): start for tp, start in starts.items()})
            run.positions = starts
        began, cpu = perf_counter(), _cpu_seconds()
        if sink == "noop":
            frame.selectExpr(*SELECTED).write.format("noop").mode("overwrite").save()
        elif sink == "drop":
            frame.selectExpr(*SELECTED).mapInArrow(drop, "rows long").collect()
        else:
            self._runs[sink].put_batch(frame, batch_id)
        took, used = perf_counter() - began, _cpu_seconds() - cpu
        counts = [self._ends[tp] - starts[tp] for tp in starts]
        say(f"batch {batch_id}: {sink} {took:.2f} s, {used:.2f} s of the machine's processors, {counts} records")
        if sink in APPENDFSYNC:
            self._runs[sink]._storage.clear("pending")  # it holds in memory what sinkers do not take out
        if batch_id >= WARM_UP_ROUNDS * len(self.seconds):
            self.seconds[sink].append(took)


def _cpu_seconds() -> float:
    """What all processors have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def drop(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def _report(seconds: dict[str, list[float]], records: int, storage: str) -> None:
    median = {sink: statistics.median(taken) for sink, taken in seconds.items()}
    mean = {sink: statistics.mean(taken) for sink, taken in seconds.items()}
    for other, target in TARGETS[storage].items():
        ratio, ratio_of_means = median[other] / median[storage], mean[other] / mean[storage]
        line = {
            "benchmark": LINES[storage] + other,
            "put_rows_per_second": round(records / median[storage]),
            f"{other}_rows_per_second": round(records / median[other]),
            "records": records,
            "rounds": len(seconds[storage]),
        }
        line |= {"ratio": round(ratio, 2), "ratio_of_means": round(ratio_of_means, 2), "target": target}
        print(json.dumps(line | {"met": min(ratio, ratio_of_means) >= target}), flush=True)


if __name__ == "__main__":
    main()
