"""`python typed_tables.py FOLDER` puts batches of Avro into tables by Spark, without Kafka, with schemas of a real
registry.

It prints as JSON the outcomes, and what fastavro makes of the same bytes.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from io import BytesIO
from math import isnan
from pathlib import Path
from typing import Any

import fastavro
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kctl.jars.lock import jar_paths
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
from tests.acceptance.lone_spark import lone_session
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
        self.is_running = False
        """If false, each batch starts a query."""
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
    """Widens int to long, which the table rejects; then the registry gets a version that fits."""
    number, schema = table.register(ID, VALUE)
    table.put((framed(number, encoded(schema, {"id": "a", "value": 1})), None))
    long = {**VALUE, "type": "long"}
    number, schema = table.register(ID, long)
    message = framed(number, encoded(schema, {"id": "b", "value": 2})), None
    refused = table.refused(message)
    table.register(ID, {**VALUE, "doc": "it fits"})
    return {"refused": refused, "then": table.refused(message), "dead": table.dead(), "rows": table.rows()}


def away(table: Table) -> dict[str, Any]:
    """The registry fails before and while a schema appears; known ids keep working."""
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


Drawn = tuple[Any, st.SearchStrategy[Any]]
"""A schema and its values."""
INSTANTS = st.integers(-6 * 10**13, 6 * 10**13)
STEPS = {"millis": timedelta(milliseconds=1), "micros": timedelta(microseconds=1)}


def moments(step: timedelta, epoch: datetime) -> st.SearchStrategy[datetime]:
    return INSTANTS.map(lambda number: epoch + number * step)


def times(step: timedelta) -> st.SearchStrategy[time]:
    return st.integers(0, timedelta(days=1) // step - 1).map(lambda number: (datetime.min + number * step).time())


PLAIN: list[Drawn] = [
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("boolean", st.booleans()),
    ("string", st.text(st.characters(codec="utf-8"))),
    ("bytes", st.binary(max_size=20)),
    ({"type": "int", "logicalType": "date"}, st.dates(date(1, 1, 1))),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}, st.decimals(-999, 999, places=3)),
    *(
        ({"type": "long", "logicalType": f"{kind}-{unit}"}, moments(step, epoch))
        for kind, epoch in (
            ("timestamp", datetime(1970, 1, 1, tzinfo=UTC)),
            ("local-timestamp", datetime(1970, 1, 1)),
        )
        for unit, step in STEPS.items()
    ),
    *(
        ({"type": kind, "logicalType": f"time-{unit}"}, times(STEPS[unit]))
        for kind, unit in (("int", "millis"), ("long", "micros"))
    ),
]
MEMBERS = {"boolean": bool, "long": int, "double": float, "string": str, "bytes": bytes, "record": dict, "array": list}
"""Kinds of a union, by which the values of its members differ."""
NUMBERS = (["int", "long"], ["float", "double"], ["null", "double", "float"])
"""Unions that Spark makes one column of."""


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> Drawn:
    nested = ("array", "map", "record", "optional", "union")
    kind = draw(st.sampled_from(("plain", "enum", "fixed", "decimal", "numbers", *(nested if depth else ()))))
    name = f"t{draw(st.uuids()).hex}"
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from("AB")
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 4}, st.binary(min_size=4, max_size=4)
    if kind == "decimal":
        schema = {"type": "fixed", "name": name, "size": 6, "logicalType": "decimal", "precision": 12, "scale": 3}
        return schema, st.decimals(-999, 999, places=3)
    if kind == "plain":
        return draw(st.sampled_from(PLAIN))
    if kind == "numbers":
        union = draw(st.sampled_from(NUMBERS))
        return union, st.one_of(*(st.none() if each == "null" else dict(PLAIN[:4])[each] for each in union))
    if kind == "union":
        return draw(unions(depth - 1, name))
    if kind == "record":
        return draw(records(depth - 1, name))
    schema, values = draw(typed_values(depth - 1))
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": schema}, st.dictionaries(st.text("abc", max_size=3), values, max_size=3)
    if isinstance(schema, list):
        return schema, values
    return draw(st.sampled_from((["null", schema], [schema, "null"]))), st.none() | values


@st.composite
def unions(draw: st.DrawFn, depth: int, name: str) -> Drawn:
    members: list[Drawn] = [("null", st.none())]
    for kind in draw(st.lists(st.sampled_from(tuple(MEMBERS)), min_size=2, max_size=4, unique=True)):
        if kind == "record":
            members.append(draw(records(depth, name)))
        elif kind == "array":
            members.append(({"type": "array", "items": "string"}, st.lists(st.text("abc"), max_size=3)))
        else:
            members.append(next(each for each in PLAIN if each[0] == kind))
    members = draw(st.permutations(members[draw(st.integers(0, 1)) :]))
    return [schema for schema, _ in members], st.one_of(*(values for _, values in members))


@st.composite
def records(draw: st.DrawFn, depth: int, name: str) -> Drawn:
    fields = draw(st.lists(typed_values(depth), min_size=1, max_size=5))
    schema = record(*({"name": f"f{n}", "type": type_} for n, (type_, _) in enumerate(fields)), name=name)
    return schema, st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(fields)})


def later_version(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the first field, and with another one."""
    return {**schema, "fields": [*schema["fields"][1:], {"name": "more", "type": ["int", "null"], "default": 7}]}


def as_spark(schema: Any, value: Any) -> Any:
    """A value of fastavro as its column has it."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if value is None or schema in NUMBERS:
            return plain_number(value)
        if len(others) == 1:
            return as_spark(others[0], value)
        kinds = [MEMBERS[each["type"] if isinstance(each, dict) else each] for each in others]
        at = kinds.index(type(value))
        return {f"member{n}": as_spark(each, value) if n == at else None for n, each in enumerate(others)}
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {field["name"]: as_spark(field["type"], value[field["name"]]) for field in schema["fields"]}
    if kind == "array":
        return [as_spark(schema["items"], each) for each in value]
    if kind == "map":
        return sorted((key, as_spark(schema["values"], each)) for key, each in value.items())
    if isinstance(value, time):
        since_midnight = datetime.combine(date.min, value) - datetime.min
        return since_midnight // STEPS[schema["logicalType"].removeprefix("time-")]
    return str(value) if isinstance(schema, dict) and schema.get("logicalType") == "uuid" else plain_number(value)


def plain_number(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and isnan(value) else value


def as_plain(value: Any) -> Any:
    """Of an Arrow value: maps sorted, and NaN comparable."""
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, list):
        made = [tuple(map(as_plain, each)) if isinstance(each, tuple) else as_plain(each) for each in value]
        return sorted(made) if made and isinstance(made[0], tuple) else made
    return plain_number(value)


def properties(spark: SparkSession, registry: FaultyRegistry, examples: int) -> dict[str, Any]:
    """Random schemas and records: the number decoded as by fastavro, and the differences."""
    drawn: list[tuple[Any, list[Any], bool]] = []

    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        schema, values = data.draw(records(2, "shop.Any"))
        drawn.append((schema, [data.draw(values) for _ in range(4)], data.draw(st.booleans())))

    draw()
    different = []
    for number, (schema, values, is_old) in enumerate(drawn):
        topic = f"any{number}"
        id_ = registry.registry.register(f"{topic}-value", schema)
        reader = later_version(schema) if is_old else schema
        registry.registry.register(f"{topic}-value", reader)
        payloads = [encoded(schema, value) for value in values]
        cut = [each[: random.Random(number).randrange(len(each))] for each in payloads if each]
        typed = TypedRows(Registry(RegistrySettings(registry.url)), [topic], print)
        typed.refresh()
        frame = spark.createDataFrame(
            [(topic, 0, n, MOMENT, 0, None, framed(id_, each), None) for n, each in enumerate([*payloads, *cut])], KAFKA
        )
        typed.learn(frame)
        found = sorted(typed.decoded(frame).toArrow().to_pylist(), key=lambda row: int(row["_kafka"]["offset"]))
        parsed, read = (fastavro.parse_schema(json.loads(json.dumps(each))) for each in (schema, reader))
        for row, payload in zip(found, [*payloads, *cut], strict=True):
            try:
                fastavro.schemaless_reader(BytesIO(payload), parsed, None)  # it may skip fields that are cut off
                value = fastavro.schemaless_reader(BytesIO(payload), parsed, read)
            except Exception:
                if row[ERROR] is None:
                    different.append([schema, payload.hex(), "fastavro cannot read it"])
                continue
            made = {field["name"]: as_plain(row[field["name"]]) for field in reader["fields"]}
            if row[ERROR] is not None or made != as_spark(reader, value):
                different.append([schema, payload.hex(), row[ERROR], made, as_spark(reader, value)])
    return {"schemas": len(drawn), "different": different[:3]}


def as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def main(folder: Path) -> None:
    avro = [str(jar) for jar in jar_paths("spark") if "avro" in jar.name]
    spark = lone_session(folder, {"spark.jars": ",".join(avro), "spark.sql.session.timeZone": "UTC"})
    with SchemaRegistry(folder) as apicurio, FaultyRegistry(apicurio) as registry:
        cases: dict[str, tuple[Callable[[Table], Any], dict[str, Any]]] = {
            "mixed": (mixed, {}),
            "evolving": (evolving, {}),
            "merged": (evolving, {"merge_schema": True}),
            "widened": (widened, {}),
            "shared": (shared, {}),
            "transformed": (transformed, {"transform": doubling}),
        }
        found = {name: run(Table(spark, folder / name, registry, **more)) for name, (run, more) in cases.items()}
        found["unusable"] = unusable(spark, folder, registry)
        found["texts"] = texts(spark)
        found["properties"] = properties(spark, registry, 25)
        found["away"] = away(Table(spark, folder / "away", registry))
    sys.stdout.write(json.dumps(found, default=as_json))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
