"""Rows per second of Avro into typed columns of a Delta table, against `from_avro` and `from_json` written by hand.

Batches are read from Parquet files with Kafka's columns, so that the source costs little. Each has files of its own:
an offset in the plan would make Spark compile each batch. The sinks take turns; each is a worker's own `LakePut` into a
table of its own, with the same columns:

- `typed`: `kafka.value_format = "avro"`, with a real registry, four writer schemas and the framing by id;
- `by_hand`: a transform with `from_avro(substring(value, 6), SCHEMA)`, one fixed schema and no check;
- `json`: a transform with `from_json` on the same rows as JSON;
- `one_percent`, `all_bad`: `typed` with so many records cut off, which become dead letters;
- `handler`: `Message.decoded`, in this process.

    python -m benchmarks.lake_typed [--rounds 6] [--records 100000] [--sinks typed by_hand …]

Prints JSON lines: rows per second by the median of the rounds, and `ratio` to `by_hand` with its target. `decode` lines
have the same rows into Spark's noop sink, without a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import fastavro

from benchmarks._fleet import progress
from benchmarks._orders import ORDER, orders
from kctl.jars.lock import jar_paths
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.schemas.registry import Registry
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query.lake_put import COLUMNS, LakePut
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.typed_rows import TypedRows
from tests.acceptance.delta_spark import lone_session
from tests.servers.schema_registry import SchemaRegistry, framed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
WARM_UP_ROUNDS = 6
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}]}
FIELDS: list[dict[str, Any]] = [
    {"name": "order_id", "type": "long"},
    {"name": "customer", "type": "long"},
    {"name": "status", "type": "string"},
    {"name": "amount", "type": "double"},
    {"name": "currency", "type": "string"},
    {"name": "items", "type": {"type": "array", "items": ITEM}},
    {"name": "at", "type": "string"},
]
SCHEMA = {"type": "record", "name": "Order", "fields": FIELDS}
LEAST = {"typed": {"by_hand": 0.8, "json": 1.0}, "one_percent": {"typed": 0.5}}
"""The least speed of a sink, as ratios to others."""
LEAST_BAD = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Avro into typed columns")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--sinks", nargs="+", default=("typed", "by_hand", "json", "one_percent", "all_bad"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, SchemaRegistry(Path(folder)) as registry:
        place = Path(folder)
        ids = [registry.register(f"{TOPIC}-value", {**SCHEMA, "doc": f"version {version}"}) for version in range(4)]
        jars = ",".join(str(jar) for jar in jar_paths("spark") if "avro" in jar.name)
        conf = {"spark.jars": jars, "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": ""}
        spark = lone_session(place, conf)
        values = _values(place, ids, options.records)
        sinks = {sink: Sink(spark, place / sink, registry, values[sink]) for sink in options.sinks}
        puts: dict[str, list[float]] = {sink: [] for sink in sinks}
        decodes: dict[str, list[float]] = {sink: [] for sink in sinks}
        for number in range(WARM_UP_ROUNDS + options.rounds):
            for name, sink in sinks.items():
                batch = sink.source(number)
                puts[name].append(_seconds(lambda: sink.put(batch, number)))  # noqa: B023
                decodes[name].append(_seconds(lambda: sink.decode(batch)))  # noqa: B023
                progress(f"round {number}: {name} {puts[name][-1]:.2f} s, decoded in {decodes[name][-1]:.2f} s")
        for step, took in {"lake": puts, "decode": decodes}.items():
            medians = {name: statistics.median(each[WARM_UP_ROUNDS:]) for name, each in took.items()}
            for name, median in medians.items():
                rate, ratio = round(options.records / median), medians.get("by_hand", median) / median
                line = {"benchmark": f"{step}_{name}", "rows_per_second": rate, "ratio": round(ratio, 2)}
                if step == "lake":
                    line |= _target(name, rate, medians)
                print(json.dumps(line), flush=True)
        _handler(registry, values["typed"][:20_000])


def _values(place: Path, ids: list[int], count: int) -> dict[str, list[bytes]]:
    parsed = fastavro.parse_schema(SCHEMA)
    lines = orders(place).read_text().splitlines()
    good, text = [], []
    for number in range(count):
        line = lines[number % len(lines)]
        written = BytesIO()
        fastavro.schemaless_writer(written, parsed, json.loads(line))
        good.append(framed(ids[number % 4], written.getvalue()))
        text.append(line.encode())
    bad = [value[:-9] for value in good]
    mostly = [bad[at] if at % 100 == 0 else value for at, value in enumerate(good)]
    return {"typed": good, "by_hand": good, "json": text, "one_percent": mostly, "all_bad": bad}


class Sink:
    """A table, and batches of these values. All have the same records."""

    def __init__(self, spark: SparkSession, table: Path, registry: SchemaRegistry, values: list[bytes]) -> None:
        self._spark = spark
        self._table = table
        self._count = len(values)
        rows = spark.createDataFrame(list(enumerate(values)), "offset bigint, value binary")
        rows.write.parquet(self._files("values"))
        storage = LakeStorage(LocalFolder(table))
        storage.prepare()
        by_hand = {"by_hand": partial(_by_hand, False), "json": partial(_by_hand, True)}.get(table.name)
        typed = None if by_hand else TypedRows(Registry(RegistrySettings(registry.url)), [TOPIC], print)
        self._put = LakePut(storage, by_hand or _same, "by_hand", typed)
        self._put.check(self.source(0))
        storage.bind(Binding("bench", "bench"))
        storage.init_offsets([StoredOffset(TOPIC, 0, None, 0)])

    def source(self, number: int) -> DataFrame:
        """The batch of this number, from files that are written now."""
        from pyspark.sql import functions as f

        headers = f.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers")
        self._spark.read.parquet(self._files("values")).select(
            f.lit(TOPIC).alias("topic"),
            f.lit(0).alias("partition"),
            (f.col("offset") + number * self._count).alias("offset"),
            f.current_timestamp().alias("timestamp"),
            f.lit(0).alias("timestampType"),
            f.lit(None).cast("binary").alias("key"),
            "value",
            headers,
        ).write.mode("overwrite").parquet(self._files("batch"))
        return self._spark.read.parquet(self._files("batch"))

    def put(self, batch: DataFrame, number: int) -> None:
        ends = BatchRange(number * self._count, (number + 1) * self._count, 1, None)
        self._put.put(batch, {(TOPIC, 0): ends}, "bench")

    def decode(self, batch: DataFrame) -> None:
        self._put.transformed(batch).write.format("noop").mode("overwrite").save()

    def _files(self, name: str) -> str:
        return str(self._table.with_name(f"{self._table.name}-{name}"))


def _seconds(step: Callable[[], None]) -> float:
    os.sync()
    began = perf_counter()
    step()
    return perf_counter() - began


def _target(sink: str, rate: int, medians: dict[str, float]) -> dict[str, Any]:
    """What a sink must reach, and whether it does."""
    if sink == "all_bad":
        return {"target": LEAST_BAD, "met": rate >= LEAST_BAD}
    if sink not in LEAST:
        return {}
    return {
        "met": all(medians[each] / medians[sink] >= least for each, least in LEAST[sink].items() if each in medians)
    }


def _same(frame: DataFrame) -> DataFrame:
    return frame


def _by_hand(is_json: bool, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    order = (
        f.from_json(f.col("value").cast("string"), ORDER.replace("at timestamp", "at string"))
        if is_json
        else from_avro(f.expr("substring(value, 6)"), json.dumps(SCHEMA))
    )
    return frame.select(order.alias("order"), f.struct(*COLUMNS).alias("_kafka")).select("order.*", "_kafka")


def _handler(registry: SchemaRegistry, values: list[bytes]) -> None:
    decoder = Decoder(Formats(value="avro", registry=RegistrySettings(registry.url)))
    decoder.value(values[0], ())
    began = perf_counter()
    for value in values:
        decoder.value(value, ())
    rate = round(len(values) / (perf_counter() - began))
    print(json.dumps({"benchmark": "handler_decoded", "values_per_second": rate}), flush=True)


if __name__ == "__main__":
    main()
