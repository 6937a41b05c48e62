"""Batches of Avro that Spark puts into tables, without Kafka, with schemas of a real registry: the outcomes, and what
fastavro makes of the same bytes."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kctl_agent.errors import RegistryUnusable
from kctl_agent.schemas import registry as client
from kctl_agent.schemas.formats import RegistrySettings
from kctl_agent.schemas.registry import Registry
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query.lake_put import LakePut
from kctl_agent.worker.query.marked_rows import ERROR
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.requeue_put import RequeuePut
from kctl_agent.worker.query.typed_rows import TypedRows, unframed
from tests.servers.schema_registry import FaultyRegistry, SchemaRegistry, framed

GROUP = Binding("group", "cluster")
KAFKA = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
Message = tuple[bytes | None, list[tuple[str, bytes]] | None]
ID, NOTE = {"name": "id", "type": "string"}, {"name": "note", "type": ["null", "string"], "default": None}
TIMES = {"name": "topic", "type": {"type": "long", "logicalType": "timestamp-millis"}}
"""A field with the name of one of Kafka's columns."""
VALUE: dict[str, Any] = {"name": "value", "type": "int", "default": 0}
MOMENT = datetime(2026, 11, 28, 7, 45, tzinfo=UTC)


def record(*fields: Any, name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def encoded(schema: Any, value: Any) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return written.getvalue()


class Table:
    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        registry: FaultyRegistry,
        transform: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        *,
        merge_schema: bool = False,
    ) -> None:
        self.topic, self.path, self.registry = folder.name, folder, registry
        self.events: list[str] = []
        self.end = 0
        self.is_running = False  # if false, each batch starts a query
        self._spark = spark
        self.storage = LakeStorage(LocalFolder(folder), merge_schema=merge_schema)
        self.typed = TypedRows(
            Registry(RegistrySettings(registry.url)), [self.topic], lambda _, text: self.events.append(text)
        )
        self.put_ = LakePut(self.storage, transform, "items:typed", self.typed)
        self.storage.prepare()

    def register(self, *fields: Any, name: str = "shop.Order") -> tuple[int, dict[str, Any]]:
        schema = record(*fields, name=name)
        return self.registry.registry.register(f"{self.topic}-value", schema), schema

    def frame(self, *messages: Message) -> DataFrame:
        return self._spark.createDataFrame(
            [
                (self.topic, 0, self.end + number, MOMENT, 0, b"key", value, headers)
                for number, (value, headers) in enumerate(messages)
            ],
            KAFKA,
        )

    def put(self, *messages: Message) -> None:
        frame = self.frame(*messages)
        if not self.is_running:
            self.put_.check(frame)
        self.storage.bind(GROUP)
        if not self.storage.stored_offsets([(self.topic, 0)]):
            self.storage.init_offsets([StoredOffset(self.topic, 0, None, 0)])
        end = self.end + len(messages)
        self.put_.put(frame, {(self.topic, 0): BatchRange(self.end, end, 1, None)}, "token")
        self.end = end

    def refused(self, *messages: Message) -> str | None:
        try:
            self.put(*messages)
        except RegistryUnusable as error:
            return str(error)
        return None

    def rows(self) -> list[dict[str, Any]]:
        found = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        rows = [{**{k: v for k, v in row.items() if k != "_kafka"}, "_at": row["_kafka"]["offset"]} for row in found]
        return sorted(rows, key=lambda row: int(row["_at"]))

    def dead(self) -> list[list[Any]]:
        return [[each.offset, each.error] for each in DeadLetterTable(self.storage, GROUP.group).dead()]

    def requeued(self) -> list[list[Any]]:
        DeadLetterTable(self.storage, GROUP.group).requeue_dead()
        RequeuePut(self.storage, lambda frame: frame, "", GROUP.group, "worker-0", self.typed).put_next(self._spark)
        return self.dead()


def mixed(table: Table) -> dict[str, Any]:
    first, old = table.register(ID, TIMES)
    second, new = table.register(ID, TIMES, NOTE)
    third, newest = table.register(ID, TIMES, NOTE, VALUE)
    fourth = table.registry.registry.register("other-value", record(TIMES))
    payment = record(ID, TIMES, name="shop.Payment")
    fifth = table.registry.registry.register("payments-value", payment)
    a: dict[str, Any] = {"id": "a", "topic": MOMENT}
    b: dict[str, Any] = {"id": "b", "topic": MOMENT, "note": "hello"}
    c: dict[str, Any] = {"id": "c", "topic": MOMENT, "note": None, "value": 7}
    in_header = [("__value_schema_id", framed(second, b"")), ("x", b"y")]
    table.put(
        (framed(first, encoded(old, a)), None),
        (framed(second, encoded(new, b), by_guid=True), None),
        (framed(third, encoded(newest, c)), [("x", b"y")]),
        (encoded(new, b), in_header),
        (None, None),
        (framed(4711, b"x"), None),
        (framed(999, b"x", by_guid=True), None),
        (framed(third, encoded(newest, c)[:-2]), None),
        (b"{}", None),
        (b"", None),
        (b"\0\0", None),
        (framed(fourth, encoded(record(TIMES), {"topic": MOMENT})), None),
        (framed(fifth, encoded(payment, a)), None),
    )
    asked = Counter(table.registry.asked)
    table.put((framed(first, encoded(old, a)), None))
    nothing = {"id": None, "topic": None, "note": None, "value": None}
    expected = [{**a, "note": None, "value": 0}, {**b, "value": 0}, c, {**b, "value": 0}, nothing]
    found = {
        "rows": table.rows(),
        "expected": [{**row, "_at": at} for at, row in enumerate(expected)]
        + [{**a, "note": None, "value": 0, "_at": table.end - 1}],
        "dead": table.dead(),
        "ids": [third, fourth, fifth],
        "asked_again": table.registry.asked[f"/schemas/ids/{first}"] - asked[f"/schemas/ids/{first}"],
    }
    table.registry.registry.register("late-value", record(ID, name="shop.Late"))
    found["again"] = table.requeued()
    return found


def evolving(table: Table) -> dict[str, Any]:
    inner = record({"name": "sku", "type": "string"}, name="shop.Item")
    wider = record({"name": "sku", "type": "string"}, NOTE, name="shop.Item")
    number, schema = table.register(ID, {"name": "item", "type": inner})
    table.put((framed(number, encoded(schema, {"id": "a", "item": {"sku": "x"}})), None))
    number, schema = table.register(ID, {"name": "item", "type": wider}, VALUE)
    value = {"id": "b", "item": {"sku": "y", "note": "n"}, "value": 3}
    table.put((framed(number, encoded(schema, value)), None))
    table.put((framed(number, encoded(schema, value)), None))
    return {"rows": table.rows(), "events": table.events}


def widened(table: Table) -> dict[str, Any]:
    """Widens int to long, which the table rejects. Then the registry gets a version that fits."""
    number, schema = table.register(ID, VALUE)
    table.put((framed(number, encoded(schema, {"id": "a", "value": 1})), None))
    long = {**VALUE, "type": "long"}
    number, schema = table.register(ID, long)
    message = framed(number, encoded(schema, {"id": "b", "value": 2})), None
    refused = table.refused(message)
    table.register(ID, {**VALUE, "doc": "it fits"})
    return {"refused": refused, "then": table.refused(message), "dead": table.dead(), "rows": table.rows()}


def away(table: Table) -> dict[str, Any]:
    """The registry fails before and while a schema appears. Known ids keep working."""
    client.TIMEOUT_SECONDS, client.RETRY_SECONDS, client.UNKNOWN_SECONDS = 0.3, 0.0, 0.0
    table.registry.fault = 500, b""
    found: dict[str, Any] = {"before": table.refused((None, None))}
    table.registry.fault = False
    found["absent"] = table.refused((None, None))
    number, schema = table.register(ID)
    known = framed(number, encoded(schema, {"id": "a"})), None
    table.put(known)
    number, schema = table.register(ID, NOTE)
    new = framed(number, encoded(schema, {"id": "b", "note": "n"})), None
    faults: dict[str, Any] = {"silent": None, "401": (401, b""), "404": (404, b""), "garbage": (200, b"<html>")}
    table.is_running = True
    for name, fault in faults.items():
        table.registry.fault = fault
        found[name] = table.refused(known), table.refused(known, new)
    table.registry.fault = False
    table.is_running = False
    table.put(new)
    return found | {"rows": table.rows(), "dead": table.dead()}


def transformed(table: Table) -> dict[str, Any]:
    number, schema = table.register(ID, VALUE)
    values = [framed(number, encoded(schema, {"id": name, "value": n})) for n, name in enumerate("abc")]
    table.put(*((value, None) for value in values), (b"bad", None))
    return {"rows": table.rows(), "dead": table.dead()}


def shared(table: Table) -> dict[str, Any]:
    """A requeue learns a schema while a batch makes the columns of what was known before."""
    number, schema = table.register(ID)
    table.put((framed(number, encoded(schema, {"id": "a"})), None))
    number, schema = table.register(ID, NOTE)
    new = framed(number, encoded(schema, {"id": "b", "note": "n"}))
    messages = table.frame((new, None))
    making = table.typed._record

    def learning(*given: Any) -> Any:
        table.typed._record = making  # type: ignore[method-assign]
        made = making(*given)
        table.typed.learn(messages)
        return made

    table.typed.refresh()
    table.typed._record = learning  # type: ignore[method-assign, assignment]
    table.put((new, None))
    return {"rows": table.rows(), "dead": table.dead()}


def doubling(frame: DataFrame) -> DataFrame:
    both = frame.union(frame).groupBy("id", "_kafka").agg(f.sum("value").alias("value"))
    return both.withColumn(ERROR, f.when(f.col("id") == "b", f.lit("no b")))


def unusable(spark: SparkSession, folder: Path, registry: FaultyRegistry) -> dict[str, str | None]:
    found = {}
    for name, schema, kind in (
        ("plain", '"string"', "AVRO"),
        ("proto", 'syntax = "proto3"; message Order { string id = 1; }', "PROTOBUF"),
        ("taken", json.dumps(record({"name": "_kafka", "type": "string"})), "AVRO"),
        ("twice", json.dumps(record(ID, {"name": "ID", "type": "string"})), "AVRO"),
        ("endless", json.dumps(record({"name": "next", "type": ["null", "shop.Order"]})), "AVRO"),
        ("nothing", json.dumps(record({"name": "n", "type": "null"})), "AVRO"),
    ):
        table = Table(spark, folder / name, registry)
        registry.registry.register(f"{name}-value", schema, kind=kind)
        found[name] = table.refused((None, None))
    for name in ("left", "right"):
        registry.registry.register(f"{name}-value", record(ID, name=f"shop.{name}"))
    typed = TypedRows(Registry(RegistrySettings(registry.url)), ["left", "right"], print)
    try:
        typed.refresh()
    except RegistryUnusable as error:
        found["differing"] = str(error)
    return found


def texts(spark: SparkSession) -> list[str]:
    in_header: list[Any] = [
        ("__value_schema_id", None),
        ("a", None),
        ("__value_schema_id", framed(1, b"")),
        ("b", None),
    ]
    values: list[Message] = [(b"{}", None), (framed(1, b"{}"), None), (framed(1, b"{}", by_guid=True), None)]
    values += [(b"{}", in_header), (framed(1, b"{}"), in_header[2::-1]), (framed(1, b"{}"), []), (None, None)]
    rows = [("t", 0, at, MOMENT, 0, None, *value) for at, value in enumerate(values)]
    return [str(row["value"] and bytes(row["value"])) for row in unframed(spark.createDataFrame(rows, KAFKA)).collect()]


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


MEMBERS = ["null", "boolean", "long", "double", "string", "bytes", record(ID, name="Part")]
MEMBERS += [{"type": "array", "items": "string"}]
TYPES: dict[str, tuple[Any, list[Any]]] = {  # fields of every type with their values
    "int": ("int", [-(2**31), 2**31 - 1]),
    "long": ("long", [-(2**63), 2**63 - 1]),
    "float": ("float", [-0.5, inf]),
    "double": ("double", [0.1, -inf]),
    "boolean": ("boolean", [True, False]),
    "string": ("string", ["", "gr\u00fc\u00dfe \U0001f680"]),
    "bytes": ("bytes", [b"", b"\0\xff"]),
    "date": (logical("int", "date"), [date(1, 1, 1), date(9999, 12, 31)]),
    "uuid": (logical("string", "uuid"), [UUID(int=0), UUID(int=2**128 - 1)]),
    "decimal": (logical("bytes", "decimal", precision=12, scale=3), [Decimal("-999.999"), Decimal("0.001")]),
    "moment": (logical("long", "timestamp-millis"), [MOMENT, datetime(100, 1, 1, tzinfo=UTC)]),
    "moment_us": (logical("long", "timestamp-micros"), [MOMENT, datetime(1969, 1, 1, 0, 0, 0, 1, UTC)]),
    "local": (logical("long", "local-timestamp-millis"), [datetime(2026, 1, 1), datetime(100, 1, 1)]),
    "local_us": (logical("long", "local-timestamp-micros"), [datetime(2026, 1, 1), datetime(1969, 1, 1, 0, 0, 0, 1)]),
    "time": (logical("int", "time-millis"), [time(0), time(23, 59, 59, 999000)]),
    "time_us": (logical("long", "time-micros"), [time(0), time(23, 59, 59, 999999)]),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "B"]),
    "fixed": ({"type": "fixed", "name": "F", "size": 4}, [b"1234", b"\0\0\0\xff"]),
    "of_ints": (["int", "long"], [1, 2**40]),
    "of_floats": (["null", "double", "float"], [None, 0.25]),
    "optional": ([record(ID, name="Inner"), "null"], [None, {"id": "x"}]),
    "array": ({"type": "array", "items": ["null", "int"]}, [[], [1, None]]),
    "map": ({"type": "map", "values": "long"}, [{}, {"a": 1}]),
    "union": (MEMBERS, [None, True, 7, 0.5, "x", b"y", {"id": "z"}, ["a", "b"]]),
}


def in_column(name: str, value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, time):
        step = timedelta(milliseconds=1) if name == "time" else timedelta(microseconds=1)
        return (datetime.combine(date.min, value) - datetime.min) // step
    if name == "map":
        return list(value.items())
    if name == "union" and value is not None:
        kinds = (bool, int, float, str, bytes, dict, list)
        return {f"member{n}": value if type(value) is kind else None for n, kind in enumerate(kinds)}
    return value


def every_type(table: Table) -> list[list[str]]:
    """Returns the columns that differ from what was written, by another version than the newest."""
    fields = [{"name": name, "type": type_} for name, (type_, _) in TYPES.items()]
    number, schema = table.register(ID, *fields)
    table.register(*fields, VALUE)
    values = [{name: each[n % len(each)] for name, (_, each) in TYPES.items()} for n in range(len(MEMBERS))]
    frame = table.frame(*((framed(number, encoded(schema, {"id": "a", **value})), None) for value in values))
    table.typed.refresh()
    table.typed.learn(frame)
    found = sorted(table.typed.decoded(frame).toArrow().to_pylist(), key=lambda row: int(row["_kafka"]["offset"]))
    expected = [{name: in_column(name, each) for name, each in value.items()} | {"value": 0} for value in values]
    return [
        [name, repr(row[name]), repr(value)]
        for row, wanted in zip(found, expected, strict=True)
        for name, value in wanted.items()
        if row[name] != value
    ]


def found(spark: SparkSession, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    with SchemaRegistry(folder) as apicurio, FaultyRegistry(apicurio) as registry:
        cases: dict[str, tuple[Callable[[Table], Any], dict[str, Any]]] = {
            "mixed": (mixed, {}),
            "evolving": (evolving, {}),
            "merged": (evolving, {"merge_schema": True}),
            "widened": (widened, {}),
            "shared": (shared, {}),
            "transformed": (transformed, {"transform": doubling}),
        }
        outcomes = {name: run(Table(spark, folder / name, registry, **more)) for name, (run, more) in cases.items()}
        outcomes["unusable"] = unusable(spark, folder, registry)
        outcomes["texts"] = texts(spark)
        outcomes["every_type"] = every_type(Table(spark, folder / "every", registry))
        outcomes["away"] = away(Table(spark, folder / "away", registry))
    return outcomes
