"""Rows per second from Kafka into each storage, against sinks that store nothing.

Session, source, selected columns and put are the worker's own code (`kctl_agent.worker.query.pipeline`), with its
default settings but for the size of a batch. The batches of one streaming query go to the sinks in turns, so that
whatever else the machine does falls on each:

- `drop`: a `mapInArrow` that drops what it gets, the source's own columns: the limit of any sink in Python;
- `drop_selected`: the same with the columns that a put takes: a put takes longer by no more than the storing;
- `file`, `redis`: what a worker does with a batch; Redis is set as in docs/storage.md;
- `redis_everysec`: the same with `appendfsync everysec`, to which Redis itself is set where nothing is set;
- `noop`, after each of these: Spark's own sink that drops rows inside the JVM. What a put leaves to be done, such as
  the file storage's copy of its write-ahead log, falls on the `noop` behind it and on no other sink; `left_seconds` is
  by how much that one takes longer than the one behind `drop`, which is compared.

A second query, `plain`, takes the same records by a source with Spark's own defaults, as somebody would write it that
has no kctl: `plain_drop` and `plain_noop`. While a batch of one query is timed, the other waits in its callback.

Each sink has Python workers of its own, as it would have alone: Spark would give one that a put has used to the next
that asks, with all that it has imported, which PySpark's daemon walks through after each task to collect garbage.

The records are orders in JSON, 200 bytes on average, or with `--letters` 200 random letters, which hardly compress.

Timed is the inside of the `foreachBatch` callback. What Spark does around it (planning, two log writes) costs each of
them the same and would only bring them closer together.

    python -m benchmarks.pipeline [--rounds 7] [--records 400000] [--letters] [--storage file redis redis_everysec]

Prints JSON lines from one run: `put_to_drop` is to be at least 0.9, `put_to_plain_noop` at least 0.5; for Redis at
least 0.8, `put_redis_to_drop` with an append-only file that is synced with each put and `put_redis_everysec_to_drop`.
`ratio` is that of the medians; it must hold for the means (`ratio_of_means`) as well, because what only comes with
every third batch or so a median does not see.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Condition, Event
from time import perf_counter
from typing import TYPE_CHECKING

import psutil
from kafka import TopicPartition

from benchmarks._drop import drop
from benchmarks._fleet import TOPIC, produce, progress, running_broker, worker_settings, write_config
from benchmarks._orders import orders
from benchmarks._storages import redis_server
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.kinds import open_storage
from kctl_agent.worker.query import pipeline as worker
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.put import BatchRange, PutJob
from kctl_agent.worker.query.run import Run
from kctl_agent.worker.settings import WorkerSettings, parse
from tests.servers.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

PARTITIONS = 2
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""As Spark's source has them where nobody asks for headers."""
RECORD_BYTES = 200
WARM_UP_ROUNDS = 5
"""The JVM compiles what it runs often: the third round is still half as slow again as the sixth."""
LINES = {"file": "put_to_", "redis": "put_redis_to_", "redis_everysec": "put_redis_everysec_to_"}
TARGETS = {"file": {"drop": 0.9, "plain_noop": 0.5}, "redis": {"drop": 0.8}, "redis_everysec": {"drop": 0.8}}
DROPS, PLAIN = ("drop", "drop_selected"), ("plain_drop", "plain_noop")
APPENDFSYNC = {"redis": "always", "redis_everysec": "everysec"}


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of storing what comes from Kafka")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=400_000, help="of one batch")
    parser.add_argument("--letters", action="store_true", help="values that hardly compress")
    parser.add_argument("--storage", nargs="+", choices=sorted(TARGETS), default=sorted(TARGETS))
    options = parser.parse_args()
    rounds = WARM_UP_ROUNDS + options.rounds
    batches = rounds * 2 * len((*DROPS, *options.storage))
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        # one batch more than is measured: Spark shares a batch among the partitions and may round it down
        produce(broker, (batches + 1) * options.records, RECORD_BYTES if options.letters else orders(place))
        os.sync()  # or the disk would write the broker's gigabytes beside the storages
        config = write_config(place, broker.bootstrap_servers, f"max_records_per_batch = {options.records}")
        settings = parse(json.dumps(worker_settings(config)))
        with ExitStack() as stack:
            storages = {}
            for kind in sorted(options.storage, reverse=True):
                more = {}
                if kind in APPENDFSYNC:
                    url = stack.enter_context(redis_server(place, APPENDFSYNC[kind]))
                    more = {"mode": "redis", "url": url, "namespace": "bench"}
                storages[kind] = open_storage({**settings.storage, **more})
            turns = _measure(settings, storages, rounds)
    for kind in options.storage:
        _report(turns, options.records, "letters" if options.letters else "json", kind)


def _measure(settings: WorkerSettings, storages: Mapping[str, Storage], rounds: int) -> Turns:
    settings.scratch_dir.mkdir(parents=True)
    for storage in storages.values():
        storage.prepare()
        storage.init_offsets([StoredOffset(TOPIC, number, None, 0) for number in range(PARTITIONS)])
    sources = {TopicPartition(TOPIC, number): KafkaSource(0, None, 1) for number in range(PARTITIONS)}
    checkpoint = Path(tempfile.mkdtemp(dir=settings.scratch_dir))
    pipeline = worker.Pipeline(settings, next(iter(storages.values())), lambda _: None)
    pipeline.open()
    runs = {
        kind: Run(pipeline.batch_put(storage), sources, checkpoint, pipeline.on_batch)
        for kind, storage in storages.items()
    }
    turns = Turns(runs, storages, rounds)
    try:
        queries = [
            _start(pipeline._source(sources), turns.ours, checkpoint),
            _start(_plain_source(settings), turns.plain, Path(tempfile.mkdtemp(dir=settings.scratch_dir))),
        ]
        while not turns.ended.wait(1):
            for query in queries:
                if query.exception() is not None:
                    raise SystemExit(f"a query failed: {query.exception()}")
        for query in queries:
            query.stop()
    finally:
        pipeline.close()
    return turns


def _plain_source(settings: WorkerSettings) -> DataFrame:
    from pyspark.sql import SparkSession

    return (
        SparkSession.active()
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.pipeline.max_records_per_batch)
        .load()
    )


def _start(source: DataFrame, callback: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    return (
        source.writeStream.foreachBatch(callback)
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .start()
    )


class Turns:
    """The `foreachBatch` callbacks of both queries: a round is a batch for each sink and one for `noop` behind it, then
    one for each of the plain query."""

    def __init__(self, runs: Mapping[str, Run], storages: Mapping[str, Storage], rounds: int):
        self.seconds: dict[str, list[float]] = {sink: [] for sink in (*DROPS, *runs, *PLAIN)}
        self.after: dict[str, list[float]] = {sink: [] for sink in (*DROPS, *runs)}
        """Of `noop` behind each."""
        self.ended = Event()
        self._runs = runs
        self._storages = storages
        self._first = next(iter(runs.values()))
        self._ends = self._first.positions
        self._selected = PutJob(storages[next(iter(runs))], {(TOPIC, 0): BatchRange(0, 0, 1, None)}).selected()
        ours = [turn for of in self.after for turn in ((of, self.seconds[of]), ("noop", self.after[of]))]
        self._left = deque((ours + [(sink, self.seconds[sink]) for sink in PLAIN]) * rounds)
        self._waiting: set[str] = set()
        self._changed = Condition()

    def ours(self, frame: DataFrame, batch_id: int) -> None:
        starts, self._ends = self._ends, self._first._ends(batch_id)
        with self._turn("ours") as turn:
            if turn is None:
                return
            sink, seconds = turn
            run = self._runs.get(sink)
            if run is not None:  # the stored offsets and the worker's positions have not seen the batches before
                self._storages[sink].advance_offsets(
                    [Advance(tp.topic, tp.partition, 1, 0, start) for tp, start in starts.items()]
                )
                run.positions = starts
            seconds.append(self._timed(frame, batch_id, sink))
            if sink in APPENDFSYNC and run is not None:
                self._storages[sink].clear()  # it holds in memory what sinkers do not take out

    def plain(self, frame: DataFrame, batch_id: int) -> None:
        with self._turn("plain") as turn:
            if turn is not None:
                sink, seconds = turn
                seconds.append(self._timed(frame, batch_id, sink))

    @contextmanager
    def _turn(self, query: str) -> Iterator[tuple[str, list[float]] | None]:
        """Wait until the next turn is this query's and the other one waits, too; None when all turns are over."""

        def is_mine() -> bool:
            of = "plain" if self._left and self._left[0][0] in PLAIN else "ours"
            return not self._left or (of == query and len(self._waiting) == 2)

        with self._changed:
            self._waiting.add(query)
            self._changed.notify_all()
            self._changed.wait_for(is_mine)
        yield self._left[0] if self._left else None
        with self._changed:
            self._waiting.discard(query)
            if self._left:
                self._left.popleft()
            if not self._left:
                self.ended.set()
            self._changed.notify_all()

    def _timed(self, frame: DataFrame, batch_id: int, sink: str) -> float:
        frame.sparkSession.sparkContext.environment["KCTL_BENCHMARK_SINK"] = sink  # part of what workers are kept by
        began, cpu = perf_counter(), _cpu_seconds()
        if sink in ("noop", "plain_noop"):
            frame.select(*COLUMNS).write.format("noop").mode("overwrite").save()
        elif sink in ("drop", "plain_drop"):
            frame.select(*COLUMNS).mapInArrow(drop, "rows long").collect()
        elif sink == "drop_selected":
            frame.selectExpr(*self._selected).mapInArrow(drop, "rows long").collect()
        else:
            self._runs[sink].put_batch(frame, batch_id)
        took, used = perf_counter() - began, _cpu_seconds() - cpu
        progress(f"batch {batch_id}: {sink} {took:.2f} s, {used:.2f} s of the machine's processors")
        return took


def _cpu_seconds() -> float:
    """What all processors have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _report(turns: Turns, records: int, values: str, storage: str) -> None:
    after = {sink: seconds[WARM_UP_ROUNDS:] for sink, seconds in turns.after.items()}
    taken = {sink: seconds[WARM_UP_ROUNDS:] for sink, seconds in turns.seconds.items()} | {"noop": after["drop"]}
    median = {sink: statistics.median(seconds) for sink, seconds in taken.items()}
    mean = {sink: statistics.mean(seconds) for sink, seconds in taken.items()}
    for other in (*DROPS, *PLAIN, "noop"):
        ratio, ratio_of_means = median[other] / median[storage], mean[other] / mean[storage]
        line: dict[str, object] = {
            "benchmark": LINES[storage] + other,
            "put_rows_per_second": round(records / median[storage]),
            f"{other}_rows_per_second": round(records / median[other]),
            "records": records,
            "values": values,
            "rounds": len(taken[storage]),
            "left_seconds": round(statistics.median(after[storage]) - median["noop"], 3),
            "ratio": round(ratio, 2),
            "ratio_of_means": round(ratio_of_means, 2),
        }
        target = TARGETS[storage].get(other)
        if target is not None:
            line |= {"target": target, "met": min(ratio, ratio_of_means) >= target}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
