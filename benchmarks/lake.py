"""Rows per second from Kafka into a Delta table, against Delta's own writer and against Parquet files alone.

Source, selected columns and put are the worker's own code (`kctl_agent.worker.query`), with its default settings. The
batches of one streaming query go to the sinks in turns, so that whatever else the machine does falls on each:

- `lake`: what a worker does with a batch: files, their statistics, all synced, one commit with the stored offsets;
- `delta`: Delta's own writer in `foreachBatch`, idempotent by `txnAppId` and `txnVersion`, as its documentation has it;
- `delta_tuned`: the same with its state of the table in 2 partitions (`spark.databricks.delta.snapshotPartitions`);
- `parquet`: Spark's `df.write.parquet` of the same columns, which commits and syncs nothing;
- `lake_typed`, `parquet_typed`: both with a transform that makes typed columns of JSON (`from_json`).

Timed is the inside of the `foreachBatch` callback; before each, what others have left to be written is synced. The
records are orders in JSON, 200 bytes on average. Delta's jars are those of the tests (tests/delta.lock).

    python -m benchmarks.lake [--rounds 7] [--records 100000] [--sinks lake parquet …]

Prints JSON lines from one run, `ratio` of the medians: `lake_to_delta` is to be at least 3, `lake_to_parquet` at least
0.9, `lake_typed_to_parquet_typed` at least 0.95. Of `lake` and `lake_typed` also where the time of a batch goes, as
medians of its steps: `begin` (stored offsets, plan), `write` (Spark's job), `files` (footers, statistics, synced),
`commit` (the log), `rest` (the transform, dead letters of an earlier try).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psutil
from kafka import TopicPartition

from benchmarks._fleet import GROUP, TOPIC, produce, progress, running_broker, worker_settings, write_config
from benchmarks._orders import ORDER, orders
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake import table_storage as storage_module
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query import lake_put
from kctl_agent.worker.query import pipeline as worker
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.lake_put import COLUMNS, LakePut
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.run import Run
from kctl_agent.worker.settings import WorkerSettings, parse
from tests.delta_jars import delta_jars
from tests.servers.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 2
WARM_UP_ROUNDS = 5
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SNAPSHOT_PARTITIONS = {"delta": "50", "delta_tuned": "2"}
"""Of Delta's state of the table; 50 is its default."""
PAIRS = (
    ("lake", "delta", 3.0),
    ("lake", "delta_tuned", None),
    ("lake", "parquet", 0.9),
    ("lake_typed", "parquet_typed", 0.95),
)
"""What is compared, and at least how often as fast the first is to be."""
SINKS = ("lake", "delta", "delta_tuned", "parquet", "lake_typed", "parquet_typed")


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a commit to a Delta table with each batch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000, help="of one batch; the default of a worker")
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=list(SINKS))
    options = parser.parse_args()
    rounds = WARM_UP_ROUNDS + options.rounds
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        # one batch more than is measured: Spark shares a batch among the partitions and may round it down
        produce(broker, (rounds * len(options.sinks) + 1) * options.records, orders(place))
        config = write_config(place, broker.bootstrap_servers, f"max_records_per_batch = {options.records}")
        settings = parse(json.dumps(with_delta(worker_settings(config))))
        turns = measured(settings, place, PARTITIONS, rounds, options.sinks)
    seconds = turns.seconds
    for ours, theirs, target in PAIRS:
        if ours in seconds and theirs in seconds:
            _report(
                ours, theirs, target, {sink: took[WARM_UP_ROUNDS:] for sink, took in seconds.items()}, options.records
            )
    for sink, lake in turns.lakes.items():
        steps = {step: statistics.median(took[WARM_UP_ROUNDS:]) for step, took in lake.steps.items()}
        print(json.dumps({"benchmark": f"{sink}_steps"} | {f"{step}_ms": round(s * 1e3) for step, s in steps.items()}))


def with_delta(settings: JsonObject) -> JsonObject:
    spark = settings["spark"]
    return {
        **settings,
        "spark": {
            **spark,
            "jars": [*spark["jars"], *map(str, delta_jars())],
            "conf": {**spark["conf"], **DELTA},
        },
    }


def measured(settings: WorkerSettings, place: Path, partitions: int, rounds: int, sinks: Sequence[str]) -> Turns:
    """So many rounds of batches of the topic, which has that many partitions."""
    settings.scratch_dir.mkdir(parents=True)
    sources = {TopicPartition(TOPIC, number): KafkaSource(0, None, 1) for number in range(partitions)}
    checkpoint = Path(tempfile.mkdtemp(dir=settings.scratch_dir))
    lake, into_typed = LakeStorage(LocalFolder(place / "lake")), LakeStorage(LocalFolder(place / "lake_typed"))
    pipeline = worker.Pipeline(settings, lake, lambda _: None)
    pipeline.open()
    try:
        source = pipeline._source(sources)
        puts = {
            "lake": (lake, LakePut(lake, lambda frame: frame, "")),
            "lake_typed": (into_typed, LakePut(into_typed, typed, "typed")),
        }
        lakes = {sink: Lake(*puts[sink], source, partitions) for sink in puts if sink in sinks}
        turns = Turns(
            lakes, Run(pipeline.batch_put(lake), sources, checkpoint, pipeline.on_batch), place, rounds, sinks
        )
        query = (
            source.writeStream.foreachBatch(turns.batch)
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(availableNow=True)
            .start()
        )
        while not turns.ended.wait(1):
            if query.exception() is not None:
                raise SystemExit(f"the query failed: {query.exception()}")
        query.stop()
    finally:
        pipeline.close()
    return turns


def typed(frame: DataFrame) -> DataFrame:
    """A transform."""
    from pyspark.sql.functions import col, from_json

    order = from_json(col("value").cast("string"), ORDER)
    return frame.select("topic", "partition", "offset", "timestamp", order.alias("order")).select(
        "topic", "partition", "offset", "timestamp", "order.*"
    )


class Lake:
    """A table, and what puts batches into it. `steps` are seconds of each batch, by the step."""

    def __init__(self, storage: LakeStorage, put: LakePut, source: DataFrame, partitions: int) -> None:
        self.steps: dict[str, list[float]] = {step: [] for step in ("begin", "write", "files", "commit", "rest")}
        self._storage = storage
        self._put = put
        put.check(source)
        self._took: dict[str, float] = {}
        for owner, name, step in (
            (storage, "begin", "begin"),
            (storage, "commit", "commit"),
            (storage_module, "written_files", "files"),
            (lake_put, "write", "write"),
        ):
            setattr(owner, name, self._timed(step, getattr(owner, name)))
        storage.bind(Binding(GROUP, "bench"))
        storage.init_offsets([StoredOffset(TOPIC, number, None, 0) for number in range(partitions)])

    def go_on_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """The batches of other sinks are not for this one."""
        self._storage.advance_offsets([Advance(tp.topic, tp.partition, 1, 0, start) for tp, start in starts.items()])

    def put(self, frame: DataFrame, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        ranges = {tuple(tp): BatchRange(starts[tp], end, 1, None) for tp, end in ends.items()}
        self._took, began = {}, perf_counter()
        self._put.put(frame, ranges, "bench")
        self._took["rest"] = perf_counter() - began - sum(self._took.values())
        for step, seconds in self._took.items():
            self.steps[step].append(seconds)

    def _timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._took[step] = self._took.get(step, 0.0) + perf_counter() - began

        return timed


class Turns:
    """The `foreachBatch` callback; a round is a batch for each sink, there and back."""

    def __init__(self, lakes: Mapping[str, Lake], run: Run, place: Path, rounds: int, sinks: Sequence[str]) -> None:
        self.seconds: dict[str, list[float]] = {sink: [] for sink in sinks}
        self.driver_seconds: dict[str, list[float]] = {sink: [] for sink in sinks}
        """Processor time of this Python and its JVM."""
        self.ended = Event()
        self.lakes = lakes
        self._run = run
        self._place = place
        self._starts: Mapping[TopicPartition, int] = run.positions
        self._left = deque(sink for turn in range(rounds) for sink in sinks[:: 1 if turn % 2 else -1])

    def batch(self, frame: DataFrame, batch_id: int) -> None:
        if not self._left:
            return
        sink, ends = self._left.popleft(), self._run._ends(batch_id)
        put = self._prepared(sink, frame, batch_id, ends)
        os.sync()
        before, began = _driver_seconds(), perf_counter()
        put()
        self.seconds[sink].append(perf_counter() - began)
        self.driver_seconds[sink].append(_driver_seconds() - before)
        progress(f"batch {batch_id}: {sink} {self.seconds[sink][-1]:.2f} s (load {os.getloadavg()[0]:.1f})")
        self._starts = ends
        if not self._left:
            self.ended.set()

    def _prepared(
        self, sink: str, frame: DataFrame, batch_id: int, ends: Mapping[TopicPartition, int]
    ) -> Callable[[], None]:
        lake = self.lakes.get(sink)
        if lake is not None:
            lake.go_on_at(self._starts)
            return lambda: lake.put(frame, self._starts, ends)
        path = f"file://{self._place / sink}"
        if sink in SNAPSHOT_PARTITIONS:
            conf = frame.sparkSession.conf
            conf.set("spark.databricks.delta.snapshotPartitions", SNAPSHOT_PARTITIONS[sink])
            once = {"txnAppId": "bench", "txnVersion": str(batch_id)}
            return lambda: frame.select(*COLUMNS).write.format("delta").options(**once).mode("append").save(path)
        rows = frame.select(*COLUMNS)
        return lambda: (typed(rows) if sink == "parquet_typed" else rows).write.mode("append").parquet(path)


def _driver_seconds() -> float:
    own = psutil.Process()
    times = [own.cpu_times(), *(each.cpu_times() for each in own.children() if each.name() == "java")]
    return sum(each.user + each.system for each in times)


def _report(ours: str, theirs: str, target: float | None, taken: Mapping[str, list[float]], records: int) -> None:
    median = {sink: statistics.median(seconds) for sink, seconds in taken.items()}
    ratio = median[theirs] / median[ours]
    ratio_of_means = statistics.mean(taken[theirs]) / statistics.mean(taken[ours])
    line: dict[str, object] = {
        "benchmark": f"{ours}_to_{theirs}",
        f"{ours}_rows_per_second": round(records / median[ours]),
        f"{theirs}_rows_per_second": round(records / median[theirs]),
        "records": records,
        "rounds": len(taken[ours]),
        "ratio": round(ratio, 2),
        "ratio_of_means": round(ratio_of_means, 2),
    }
    if target is not None:
        line |= {"target": target, "met": ratio >= target}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
