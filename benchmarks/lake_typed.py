"""Rows per second of Avro into typed columns of a Delta table, against `from_avro` and `from_json` written by hand.

Batches are read from Parquet files with Kafka's columns, so that the source costs little. The sinks take turns; each
is a worker's own `LakePut` into a table of its own, with the same columns:

- `typed`: `kafka.value_format = "avro"`, with a real registry, four writer schemas and the framing by id;
- `by_hand`: a transform with `from_avro(substring(value, 6), SCHEMA)`, one fixed schema and no check;
- `json`: a transform with `from_json` on the same rows as JSON;
- `one_percent`, `all_bad`: `typed` with so many records cut off, which become dead letters;
- `handler`: `Message.decoded`, in this process.

    python -m benchmarks.lake_typed [--rounds 5] [--records 100000]

Prints JSON lines: rows per second by the median of the rounds, and `ratio` to `by_hand` with its target.
"""

from __future__ import annotations

import argparse
import json
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
from tests.acceptance.lone_spark import lone_session
from tests.servers.schema_registry import SchemaRegistry, framed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
WARM_UP_ROUNDS = 2
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
TARGETS = {"typed": 0.8, "one_percent": 0.4, "all_bad": None, "json": None}
"""Ratios to `by_hand`; `one_percent` must be at least half of `typed`."""
LEAST_BAD = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Avro into typed columns")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, SchemaRegistry(Path(name)) as registry:
        place = Path(name)
        ids = [registry.register(f"{TOPIC}-value", {**SCHEMA, "doc": f"version {version}"}) for version in range(4)]
        jars = ",".join(str(jar) for jar in jar_paths("spark") if "avro" in jar.name)
        conf = {"spark.jars": jars, "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": ""}
        spark = lone_session(place, conf)
        values = _values(place, ids, options.records)
        sinks = _sinks(spark, place, registry, values)
        seconds: dict[str, list[float]] = {sink: [] for sink in sinks}
        for number in range(WARM_UP_ROUNDS + options.rounds):
            for sink, put in sinks.items():
                began = perf_counter()
                put(number)
                seconds[sink].append(perf_counter() - began)
                progress(f"round {number}: {sink} {seconds[sink][-1]:.2f} s")
        medians = {sink: statistics.median(took[WARM_UP_ROUNDS:]) for sink, took in seconds.items()}
        for sink, took in medians.items():
            target = TARGETS.get(sink)
            rate, ratio = round(options.records / took), medians["by_hand"] / took
            line = {"benchmark": f"lake_{sink}", "rows_per_second": rate, "ratio": round(ratio, 2)}
            if sink == "all_bad":
                line |= {"target": LEAST_BAD, "met": rate >= LEAST_BAD}
            print(json.dumps(line if target is None else line | {"target": target, "met": ratio >= target}), flush=True)
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


def _sinks(
    spark: SparkSession, place: Path, registry: SchemaRegistry, values: dict[str, list[bytes]]
) -> dict[str, Callable[[int], None]]:
    return {
        sink: _sink(spark, place / sink, registry, rows, sink not in ("by_hand", "json"), json_=sink == "json")
        for sink, rows in values.items()
    }


def _sink(
    spark: SparkSession, table: Path, registry: SchemaRegistry, rows: list[bytes], is_typed: bool, json_: bool
) -> Callable[[int], None]:
    from pyspark.sql import functions as f

    source = str(table.with_name(f"{table.name}-source"))
    frame = spark.createDataFrame([(at, value) for at, value in enumerate(rows)], "offset bigint, value binary")
    headers = f.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers")
    frame.select(
        f.lit(TOPIC).alias("topic"),
        f.lit(0).alias("partition"),
        "offset",
        f.current_timestamp().alias("timestamp"),
        f.lit(0).alias("timestampType"),
        f.lit(None).cast("binary").alias("key"),
        "value",
        headers,
    ).write.parquet(source)
    storage = LakeStorage(LocalFolder(table))
    storage.prepare()
    typed = TypedRows(Registry(RegistrySettings(registry.url)), [TOPIC], print) if is_typed else None
    put = LakePut(storage, _same if is_typed else partial(_by_hand, json_), "by_hand", typed)
    put.check(spark.read.parquet(source))
    storage.bind(Binding("bench", "bench"))
    storage.init_offsets([StoredOffset(TOPIC, 0, None, 0)])
    count = len(rows)

    def batch(number: int) -> None:
        moved = spark.read.parquet(source).withColumn("offset", f.col("offset") + number * count)
        put.put(moved, {(TOPIC, 0): BatchRange(number * count, (number + 1) * count, 1, None)}, "bench")

    return batch


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
