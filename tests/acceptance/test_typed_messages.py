"""A fleet fills a table from a topic of Avro under strikes: on its processes, and on the schema registry."""

import json
import os
import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import fastavro
import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer, TopicPartition

from tests.acceptance.delta_spark import DeltaSpark, delta_rs_rows, plain
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import later
from tests.conftest import BRIEF_JVM, eventually
from tests.servers.schema_registry import FaultyRegistry, SchemaRegistry, framed

PAGE = Path(__file__).parents[2] / "docs" / "typed-messages.md"
OF_THE_TEST = f"""\
merge_schema = true
maintenance = false

[workers]
trigger_seconds = 1.0
backoff_min_seconds = 0.2

[http]
port = 0

[spark]
master = "local[1]"

[spark.conf]
"spark.driver.extraJavaOptions" = "{BRIEF_JVM}"
"""
FAULTS: tuple[Any, ...] = (None, (500, b""), (401, b"{}"), (404, b"<html>"), (200, b"garbage"))
ID = {"name": "id", "type": "string"}
MOMENT = datetime(2026, 11, 28, 7, 45, tzinfo=UTC)
AMOUNT = {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
AT = {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
ITEM = {"type": "record", "name": "shop.Item", "fields": [ID, {"name": "price", "type": ["null", "double"]}]}
FIELDS = (ID, AMOUNT, AT, {"name": "items", "type": {"type": "array", "items": ITEM}})
LATER = (  # each schema after the first has one more of these fields
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "n", "type": "int", "default": 7},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
)


class Sent(NamedTuple):
    """A message, written with a schema. `reason` is empty if the message is good."""

    schema: dict[str, Any]
    payload: bytes | None
    reason: str


@pytest.fixture
def registry(short_dir: Path) -> Iterator[SchemaRegistry]:
    folder = short_dir / "registry"
    folder.mkdir()
    with SchemaRegistry(folder) as running:
        yield running


class Topic:
    """What is produced into a fleet's topic, and what must become of it."""

    def __init__(self, fleet: Fleet, registry: SchemaRegistry, seed: int) -> None:
        self.fleet, self.registry = fleet, registry
        self.sent: dict[tuple[int, int], Sent] = {}
        self.drawn = random.Random(seed)
        self.schemas: list[tuple[int, dict[str, Any]]] = []
        self._number = 0

    def register(self) -> None:
        fields = [*FIELDS, *LATER[: len(self.schemas)]]
        schema = {"type": "record", "name": "shop.Order", "fields": fields}
        self.schemas.append((self.registry.register(f"{self.fleet.topic}-value", schema), schema))

    def send(self, count: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.fleet.broker.bootstrap_servers, acks="all")
        futures = []
        for _ in range(count):
            value, headers, sent = self._message()
            futures.append((producer.send(self.fleet.topic, value, key=b"k%d" % self._number, headers=headers), sent))
        for future, sent in futures:
            done = future.get(30)
            self.sent[done.partition, done.offset] = sent
            self.fleet.sent[TopicPartition(self.fleet.topic, done.partition)] += 1
        producer.close()

    def _message(self) -> tuple[bytes | None, list[tuple[str, bytes]], Sent]:
        self._number += 1
        number, schema = self.drawn.choice(self.schemas)
        value = {
            "id": f"order-{self._number}",
            "amount": Decimal(self.drawn.randrange(-(10**6), 10**6)) / 100,
            "placed_at": MOMENT + timedelta(microseconds=self.drawn.randrange(10**12)),
            "items": [{"id": "a", "price": None}, {"id": "b", "price": self.drawn.random()}],
            "note": self.drawn.choice((None, "hello")),
            "n": self._number,
            "tags": ["a", "b"],
        }
        written = BytesIO()
        names = [field["name"] for field in schema["fields"]]
        fastavro.schemaless_writer(written, fastavro.parse_schema(schema), {name: value[name] for name in names})
        payload = written.getvalue()
        match self.drawn.randrange(40):
            case 0:
                return None, [], Sent(schema, None, "")
            case 1:
                return framed(4711, payload), [], Sent(schema, payload, "UnknownSchema")
            case 2:
                return framed(number, payload[:1]), [], Sent(schema, payload, "BadRecord")
            case 3:
                return b"plain", [], Sent(schema, payload, "NotFramed")
        good = Sent(schema, payload, "")
        match self.drawn.randrange(3):
            case 0:
                return framed(number, payload), [], good
            case 1:
                return framed(number, payload, by_guid=True), [], good
        return payload, [("__value_schema_id", framed(number, b""))], good

    def is_accounted_for(self, table: Path, spark: DeltaSpark | None) -> None:
        """Each message is one row with its values, for each reader, or one dead letter with its reason."""
        names = [field["name"] for field in self.schemas[-1][1]["fields"]]
        columns = ("_kafka", *names)
        query = f"select {', '.join(columns)} from"
        rows = sorted(delta_rs_rows(table, columns))
        by_duckdb = duckdb.execute(
            f"{query} read_parquet(?, union_by_name = true)", [DeltaTable(table).file_uris()]
        ).fetchall()
        assert sorted(plain(by_duckdb)) == rows
        assert spark is None or sorted(spark.sql(f"{query} delta.`{table}`").rows) == rows
        found = {(kafka[1], kafka[2]): dict(zip(names, values, strict=True)) for kafka, *values in rows}
        good = {place: sent for place, sent in self.sent.items() if not sent.reason}
        assert len(rows) == len(found)
        assert found.keys() == good.keys()
        for place, sent in good.items():
            self._is_row_of(sent, found[place])
        dead = DeltaTable(table.with_name(f"{table.name}_dead_letters")).to_pyarrow_table().to_pylist()
        bad = {place: sent.reason for place, sent in self.sent.items() if sent.reason}
        assert {(row["partition"], row["offset"]): row["error"].partition(":")[0] for row in dead} == bad
        assert len(dead) == len(bad)

    def _is_row_of(self, sent: Sent, row: dict[str, Any]) -> None:
        """Compares with fastavro's values. A field that is missing in the message's schema has its default. In rows
        that are older than the column, it is null."""
        if sent.payload is None:
            assert all(value is None for value in row.values())
            return
        written = {field["name"] for field in sent.schema["fields"]}
        read: Any = fastavro.schemaless_reader(BytesIO(sent.payload), sent.schema, self.schemas[-1][1])
        for name, value in row.items():
            assert value == plain(read[name]) or (value is None and name not in written), name


def use_the_page(fleet: Fleet, table: Path, registry_url: str) -> None:
    """Gives the fleet the configuration of docs/typed-messages.md, with its own names, and what a test needs."""
    [text] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)[:1]
    assert len([line for line in text.splitlines() if not line.startswith("[")]) <= 8
    mine = {
        '"127.0.0.1:9092"': json.dumps(fleet.broker.bootstrap_servers),
        '"orders-to-lake"': json.dumps(fleet.group),
        '"orders"': json.dumps(fleet.topic),
        '"http://127.0.0.1:8081"': json.dumps(registry_url),
        '"file:///srv/lake/orders"': json.dumps(table.as_uri()),
    }
    for old, new in mine.items():
        assert old in text
        text = text.replace(old, new)
    fleet.config.write_text(f"{text}{OF_THE_TEST}")


@pytest.mark.shows(
    "Avro of four schemas and three framings is in a table once, or a dead letter, despite kills and outages"
)
@pytest.mark.shows("the eight lines of docs/typed-messages.md turn an Avro topic into typed rows that DuckDB reads")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strikes", [2, pytest.param(25, marks=pytest.mark.long)])
def test_each_value_is_a_row_or_a_dead_letter_whatever_is_struck(
    make_fleet: MakeFleet, short_dir: Path, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, strikes: int
) -> None:
    monkeypatch.setenv("KCTL_KAFKA_SESSION_TIMEOUT_SECONDS", "6")
    table = short_dir / "orders"
    with FaultyRegistry(registry) as proxy:
        fleet = make_fleet(partitions=2)
        use_the_page(fleet, table, proxy.url)
        topic = Topic(fleet, registry, int(os.environ.get("KCTL_TEST_SEED", "1")))
        topic.register()
        topic.send(300)
        fleet.start()
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
        for strike in range(strikes):
            is_new = len(topic.schemas) <= len(LATER)
            if is_new:
                topic.register()
            fault = {1: killed, 2: frozen}.get(strike, faulty if strike % 2 else None)
            if fault is not None:
                with fault(proxy, topic.drawn):
                    topic.send(300)
                    if is_new:
                        eventually(lambda: waits_for_registry(fleet), 60, "the outage is named")
            else:
                topic.send(300)
                eventually(later(topic.drawn.uniform(0, 2)), 5, "the moment has come")
                victim = fleet.workers()["worker-0"]["pid"] if topic.drawn.random() < 0.5 else fleet.jvm().pid
                os.kill(victim, signal.SIGKILL)
            eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

        with DeltaSpark(short_dir / "spark") if strikes > len(LATER) else nullcontext() as spark:
            topic.is_accounted_for(table, spark)


@contextmanager
def killed(proxy: FaultyRegistry, _: random.Random) -> Iterator[None]:
    proxy.registry.kill()
    yield
    proxy.registry.start()


@contextmanager
def frozen(proxy: FaultyRegistry, _: random.Random) -> Iterator[None]:
    proxy.registry.freeze(is_frozen=True)
    yield
    eventually(later(60), 70, "a minute has passed")
    proxy.registry.freeze(is_frozen=False)


@contextmanager
def faulty(proxy: FaultyRegistry, drawn: random.Random) -> Iterator[None]:
    proxy.fault = drawn.choice(FAULTS)
    yield
    proxy.fault = False


def waits_for_registry(fleet: Fleet) -> bool:
    done = fleet.kctl("status", exit_code=None)
    return done.returncode != 0 and "the schema registry at http://" in done.stdout
