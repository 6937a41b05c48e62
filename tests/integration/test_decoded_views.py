"""Commands show decoded keys and values, with the name and the id of their schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from kafka import KafkaProducer

from kctl.cli.output import as_json
from kctl.dead_letters.documents import dead_letter_document
from kctl_agent.message import Message
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.file import FileStorage
from tests.command_lines import run_here
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.schema_registry import SchemaRegistry, framed

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "amount", "type": "double"},
    ],
}
SHOWN = {"id": "a", "at": "2026-11-28 07:45:00+00:00", "raw": "\u00ff", "amount": "nan"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


def value(registry: SchemaRegistry) -> tuple[int, bytes]:
    written = BytesIO()
    record = {"id": "a", "at": 1795851900000, "raw": b"\xff", "amount": float("nan")}
    fastavro.schemaless_writer(written, fastavro.parse_schema(ORDER), record)
    number = registry.register("orders-value", ORDER)
    return number, framed(number, written.getvalue())


@pytest.mark.shows("`kctl kafka consume` prints decoded values with the name and id of the schema, or why it cannot")
def test_consume_prints_decoded_values(
    registry: SchemaRegistry, broker: KafkaBroker, config_file: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    number, good = value(registry)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for each in (good, b"plain", None):
        producer.send("orders", each, key=b'{"k": 1}', partition=0)
    producer.close()
    formats: dict[str, object] = {"value_format": "avro", "key_format": "json"}
    config = str(config_file(kafka=formats, schema_registry={"url": registry.url}))

    def consumed(form: str, *words: str) -> list[str]:
        ran = run_here(capfd, "kafka", "consume", "-t", "orders", "-p", "0", "--format", form, *words)
        assert ran.code == 0, ran.err
        return ran.out.splitlines()

    schema, reason = f"shop.Order (id {number})", "NotFramed: no schema id precedes it, and no header names one"
    text = as_json(SHOWN, in_one_line=True)
    first, second, third = map(json.loads, consumed("json", "-c", config))
    assert (first["key_decoded"], first["value_decoded"], first["value_schema"]) == ({"k": 1}, SHOWN, schema)
    assert (second["value"], second["value_error"]) == ("plain", reason)
    assert third["value"] is None
    assert "value_decoded" not in third
    assert consumed("value", "-c", config)[0] == f"{text} {schema}"
    assert consumed("line", "-c", config)[1].endswith(reason)
    assert consumed("value", "-b", broker.bootstrap_servers)[1] == "plain"


def test_a_dead_letter_has_its_decoded_value(registry: SchemaRegistry, tmp_path: Path) -> None:
    number, good = value(registry)
    storage = FileStorage(tmp_path / "s.sqlite", block_messages=1, codec="none")
    storage.prepare()
    storage.init_offsets([StoredOffset("orders", 0, None, 0)])
    message = Message("orders", 0, 0, b"k", good, 0)
    storage.dead_letter([message], ["no"], None, Advance("orders", 0, 1, 0, 1))
    decoder = Decoder(Formats(value="avro", registry=RegistrySettings(registry.url)))

    [dead] = storage.dead()
    document = dead_letter_document(dead, decoder=decoder)

    assert (document["value_decoded"], document["value_schema"]) == (SHOWN, f"shop.Order (id {number})")
    assert "value_decoded" not in dead_letter_document(dead)
    storage.close()
