"""Seconds of a batch of 20,000 records by the number of partitions that they come from, beside Spark's own.

Session, source and put are the worker's own code with its default settings. For each number of partitions one streaming
query, whose batches go in turns to

- `file`, `redis`, `lake`: what a worker does with a batch, in tasks that read several partitions each;
- `noop`: Spark's own sink that drops rows inside the JVM, with a task for each partition, as Spark makes them.

Timed is the inside of the `foreachBatch` callback, and for `whole` the batch as Spark reports it (`triggerExecution`):
with planning, two writes of its log, and the callback. At the end: memory and descriptors of the JVM, which keeps a
consumer for each partition.

    python -m benchmarks.many_partitions [--partitions 8 100 400 1000] [--rounds 7] [--storage file redis lake]

Prints JSON lines. `growth` is a batch over 400 partitions to one over 8: at most 2; `to_noop` is Spark's own to ours:
at least 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

import psutil
from kafka import TopicPartition

from benchmarks._fleet import TOPIC, produce, progress, running_broker, worker_settings, write_config
from benchmarks._storages import redis_server
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query import pipeline as worker
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.run import Run
from kctl_agent.worker.settings import WorkerSettings, parse
from tests.servers.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = 20_000
RECORD_BYTES = 100
WARM_UP_ROUNDS = 4
STORAGES = ("file", "redis", "lake")


def main() -> None:
    parser = argparse.ArgumentParser(description="what a batch costs by the number of its partitions")
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 100, 400, 1000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--storage", nargs="+", choices=STORAGES, default=STORAGES)
    options = parser.parse_args()
    medians: dict[tuple[str, int], float] = {}
    for partitions in options.partitions:
        taken, whole, jvm = _measured(partitions, WARM_UP_ROUNDS + options.rounds, options.storage)
        for sink, seconds in taken.items():
            medians[sink, partitions] = statistics.median(seconds[WARM_UP_ROUNDS:])
        for sink in options.storage:
            _report(medians, sink, partitions, statistics.median(whole[sink][WARM_UP_ROUNDS:]), jvm)


def _report(
    medians: Mapping[tuple[str, int], float], sink: str, partitions: int, whole: float, jvm: Mapping[str, int]
) -> None:
    took = medians[sink, partitions]
    line: dict[str, object] = {
        "benchmark": "many_partitions",
        "storage": sink,
        "partitions": partitions,
        "records": RECORDS,
        "seconds": round(took, 3),
        "whole_seconds": round(whole, 3),
        "noop_seconds": round(medians["noop", partitions], 3),
        "to_noop": round(medians["noop", partitions] / took, 2),
        **jvm,
    }
    if (sink, 8) in medians:
        line["growth"] = round(took / medians[sink, 8], 2)
        if partitions == 400:
            line |= {"target": 2.0, "met": took <= 2 * medians[sink, 8] and took <= medians["noop", partitions]}
    print(json.dumps(line), flush=True)


def _measured(
    partitions: int, rounds: int, kinds: list[str]
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, int]]:
    sinks = [*kinds, "noop"]
    with running_broker({"num.partitions": "1"}) as (broker, place), ExitStack() as stack:
        create_topic(broker.bootstrap_servers, TOPIC, partitions)
        produce(broker, (rounds * len(sinks) + 2) * RECORDS, RECORD_BYTES)
        config = write_config(place, broker.bootstrap_servers, f"max_records_per_batch = {RECORDS}")
        settings = parse(json.dumps(worker_settings(config)))
        storages = {kind: _storage(kind, settings, place, stack) for kind in kinds}
        return _in_turns(settings, storages, partitions, deque(sinks * rounds))


def _storage(kind: str, settings: WorkerSettings, place: Path, stack: ExitStack) -> OffsetStore:
    if kind == "lake":
        return LakeStorage(LocalFolder(place / "lake"))
    more = {}
    if kind == "redis":
        url = stack.enter_context(redis_server(place, "always"))
        more = {"mode": "redis", "url": url, "namespace": "bench"}
    return open_storage({**settings.storage, **more})


def _in_turns(
    settings: WorkerSettings, storages: Mapping[str, OffsetStore], partitions: int, left: deque[str]
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, int]]:
    settings.scratch_dir.mkdir(parents=True)
    sources = {TopicPartition(TOPIC, number): KafkaSource(0, None, 1) for number in range(partitions)}
    turns: list[str] = []
    taken: dict[str, list[float]] = defaultdict(list)
    ended = Event()
    pipeline = worker.Pipeline(settings, next(iter(storages.values())), lambda _: None)
    pipeline.open()
    try:
        source = pipeline._source(sources)
        for storage in storages.values():
            storage.prepare()
            if isinstance(storage, LakeStorage):
                pipeline.batch_put(storage).check(source)
            storage.bind(Binding("bench", "bench"))
            storage.init_offsets([StoredOffset(TOPIC, number, None, 0) for number in range(partitions)])
        checkpoint = settings.scratch_dir / "checkpoint"
        runs = {
            kind: Run(pipeline.batch_put(storage), sources, checkpoint, pipeline.on_batch)
            for kind, storage in storages.items()
        }
        ends = [next(iter(runs.values())).positions]

        def batch(frame: DataFrame, batch_id: int) -> None:
            if not left:
                ended.set()
                return
            sink = left.popleft()
            run = runs.get(sink)
            if run is not None:  # the batches before were for others
                advances = [Advance(tp.topic, tp.partition, 1, 0, start) for tp, start in ends[-1].items()]
                storages[sink].advance_offsets(advances)
                run.positions = ends[-1]
            began = perf_counter()
            if run is None:
                frame.write.format("noop").mode("overwrite").save()
            else:
                run.put_batch(frame, batch_id)
            taken[sink].append(perf_counter() - began)
            progress(f"{partitions} partitions, {sink} {taken[sink][-1]:.2f} s (load {os.getloadavg()[0]:.1f})")
            turns.append(sink)
            ends.append(next(iter(runs.values()))._ends(batch_id))

        query = source.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint.as_uri()).start()
        while not ended.wait(1):
            if query.exception() is not None:
                raise SystemExit(f"the query failed: {query.exception()}")
        whole = [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress if each.numInputRows]
        jvm = _jvm()
        query.stop()
    finally:
        pipeline.close()
    of_sinks: dict[str, list[float]] = defaultdict(list)
    for sink, seconds in zip(turns[-len(whole) :], whole, strict=False):
        of_sinks[sink].append(seconds)
    return taken, of_sinks, jvm


def _jvm() -> dict[str, int]:
    """Of the JVM that this process has started."""
    (java,) = (
        each
        for each in psutil.Process().children(recursive=True)
        if each.name() == "java" and "SparkSubmit" in " ".join(each.cmdline())
    )
    return {"jvm_mib": java.memory_info().rss >> 20, "jvm_descriptors": java.num_fds()}


if __name__ == "__main__":
    main()
