"""The schema registry client against Apicurio: what it asks for, that a bad record is not an outage, and what commands
show.
"""

import io
import json
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest
from kafka import KafkaProducer

from kctl.cli.output import as_json
from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.message import Headers, Message, decode_by
from kctl_agent.schemas import registry as client
from kctl_agent.schemas.decoding import Decoded, Decoder
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.schemas.registry import Registry
from kctl_agent.sinker.handler import decode_messages
from tests.certificates import make_certificate
from tests.command_lines import run_here
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.schema_registry import FaultyRegistry, SchemaRegistry, framed, guid_of

pytestmark = pytest.mark.timeout(180)
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "first", "type": "Item"}, {"name": "others", "type": {"type": "array", "items": "shop.Item"}}],
}
VALUE = {"first": {"sku": "a"}, "others": [{"sku": "b"}]}
UNKNOWN = "UnknownSchema: the schema registry does not know schemas/ids/4711"


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def order_id(apicurio: SchemaRegistry) -> int:
    apicurio.register("items", ITEM)
    return apicurio.register("orders-value", ORDER, ("shop.Item", "items", 1))


@pytest.fixture
def proxy(apicurio: SchemaRegistry) -> Iterator[FaultyRegistry]:
    with FaultyRegistry(apicurio) as proxy:
        yield proxy


def prefix(number: int) -> bytes:
    return framed(number, b"")


def written(schema: Any, value: Any) -> bytes:
    names: dict[str, Any] = {}
    fastavro.parse_schema(ITEM, names)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema, names), value)
    return file.getvalue()


def payload() -> bytes:
    return written(ORDER, VALUE)


def decoder(proxy: FaultyRegistry, form: str = "avro") -> Decoder:
    return Decoder(Formats(key="avro", value=form, registry=RegistrySettings(proxy.url)))


@pytest.mark.shows("a value with a schema by id, by GUID or in a header is decoded, with references between schemas")
def test_each_framing_is_decoded_with_referenced_schemas(proxy: FaultyRegistry, order_id: int) -> None:
    decode = decoder(proxy)
    in_header: Headers = (("__value_schema_id", b"old"), ("__value_schema_id", prefix(order_id)))
    key_in_header: Headers = (("__key_schema_id", prefix(order_id)),)

    assert decode.value(framed(order_id, payload()), ()) == Decoded(VALUE, f"shop.Order (id {order_id})")
    assert decode.value(framed(order_id, payload(), by_guid=True), ()) == Decoded(
        VALUE, f"shop.Order (GUID {guid_of(order_id)})"
    )
    assert decode.value(payload(), in_header).value == VALUE
    assert decode.value(framed(order_id, payload()), (*in_header, ("__value_schema_id", None))).value == VALUE
    assert decode.key(payload(), key_in_header).value == VALUE
    assert decode.value(None, ()) == Decoded(None)


def test_a_schema_is_asked_for_once_by_however_many_threads(proxy: FaultyRegistry, order_id: int) -> None:
    registry = Registry(RegistrySettings(proxy.url))

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(registry.by_prefix, [prefix(order_id)] * 100))

    assert len(found) == 1
    assert proxy.asked == {f"/schemas/ids/{order_id}": 1, "/subjects/items/versions/1": 1}


@pytest.mark.shows("a registry that is silent, rejects credentials or answers garbage is an outage, not a bad record")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (None, "does not answer (timed out)"),
        ((401, b"{}"), "rejects the credentials of kctl (HTTP 401)"),
        ((403, b"no"), "rejects the credentials of kctl (HTTP 403)"),
        ((404, b"<html>"), "with HTTP 404"),
        ((404, b'{"error_code": 0}'), "with HTTP 404"),
        ((500, b'{"error_code": 50001}'), "with HTTP 500"),
        ((200, b"\xff garbage"), "with something other than a schema"),
        ((200, b'{"schema": 7}'), "with something other than a schema"),
        ((200, b'{"schema": "x", "references": 5}'), "with something other than a schema"),
        ((200, b'{"schema": "x", "references": [{"subject": "a"}]}'), "with something other than a schema"),
    ],
)
def test_an_outage_is_named_and_schemas_that_are_known_keep_working(
    proxy: FaultyRegistry,
    order_id: int,
    apicurio: SchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[int, bytes] | None,
    words: str,
) -> None:
    now = [0.0]
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.3)
    registry = Registry(RegistrySettings(proxy.url), clock=lambda: now[0])
    known = registry.by_prefix(prefix(order_id))
    other = apicurio.register("other-value", {**ITEM, "name": "Other"})

    proxy.fault = fault
    with pytest.raises(RegistryUnusable) as first:
        registry.by_prefix(prefix(other))
    asked = proxy.asked.total()
    with pytest.raises(RegistryUnusable) as second:
        registry.by_prefix(prefix(other))
    proxy.fault = False
    now[0] += client.RETRY_SECONDS

    assert f"the schema registry at {proxy.url} " in str(first.value)
    assert words in str(first.value)
    assert str(second.value) == str(first.value)
    assert proxy.asked.total() == asked, "an outage that is known is not met again by each thread"
    assert registry.by_prefix(prefix(order_id)) is known
    assert registry.by_prefix(prefix(other)).name == "shop.Other"


@pytest.mark.shows("a registry that is killed is an outage, and the next one on its port ends it")
def test_a_registry_that_is_killed_is_an_outage(apicurio: SchemaRegistry, order_id: int) -> None:
    now = [0.0]
    new = prefix(apicurio.register("new-value", {**ITEM, "name": "New"}))
    with FaultyRegistry(apicurio) as first:
        registry = Registry(RegistrySettings(first.url), clock=lambda: now[0])
        schema = registry.by_prefix(prefix(order_id))

    with pytest.raises(RegistryUnusable, match="Connection refused"):
        registry.by_prefix(new)
    assert registry.by_prefix(prefix(order_id)) is schema
    now[0] += client.RETRY_SECONDS

    with FaultyRegistry(apicurio, port=int(first.url.rpartition(":")[2])):
        assert registry.by_prefix(new).name == "shop.New"


@pytest.mark.shows("an id that the registry does not know makes a dead letter, and is asked for again after 10 s")
def test_an_id_that_the_registry_does_not_know_is_the_messages_fault(
    proxy: FaultyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    registry = Registry(RegistrySettings(proxy.url), clock=lambda: now[0])

    for seconds, asked in ((0.0, 1), (client.UNKNOWN_SECONDS - 1, 1), (1.0, 2)):
        now[0] += seconds
        with pytest.raises(Undecodable) as raised:
            registry.by_prefix(prefix(4711))
        assert str(raised.value) == UNKNOWN
        assert proxy.asked["/schemas/ids/4711"] == asked

    monkeypatch.setattr(client, "MOST_UNKNOWN", 2)
    for number in (*range(4712, 4715), 4714):
        with pytest.raises(Undecodable):
            registry.by_prefix(prefix(number))
    assert len(registry._unknown) <= 2, "they take a bounded amount of memory"
    assert proxy.asked["/schemas/ids/4714"] == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "NotFramed"),
        (b"{}", "NotFramed"),
        (b"\0\0\0\1", "NotFramed"),
        (framed(4711, b"x"), UNKNOWN),
        (framed(1, b""), "BadRecord"),
    ],
)
@pytest.mark.usefixtures("order_id")
def test_bytes_that_do_not_fit_have_their_reason(proxy: FaultyRegistry, data: bytes, words: str) -> None:
    decode = decoder(proxy)

    with pytest.raises(Undecodable, match=f"^{words}"):
        decode.value(data, ())

    assert decode.document("value", data, ())["value_error"].startswith(words)


def test_framed_and_plain_json_are_decoded_without_the_registry(proxy: FaultyRegistry) -> None:
    decode = decoder(proxy, form="json")

    for data in (b'{"a": 1}', framed(1, b'{"a": 1}'), framed(1, b'{"a": 1}', by_guid=True)):
        assert decode.value(data, ()) == Decoded({"a": 1})
    with pytest.raises(Undecodable, match="BadRecord: not JSON"):
        decode.value(b"{", ())
    assert not proxy.asked


def test_credentials_are_sent_and_read_again(proxy: FaultyRegistry, order_id: int, tmp_path: Path) -> None:
    for setting, text, expected in (
        ("basic_auth_file", "key:secret\n", "Basic a2V5OnNlY3JldA=="),
        ("token_file", "token\n", "Bearer token"),
    ):
        file = tmp_path / f"secret-{setting}"
        given: dict[str, Any] = {setting: str(file)}
        settings = RegistrySettings(proxy.url, **given)
        with pytest.raises(RegistryUnusable, match="No such file"):
            Registry(settings).by_prefix(prefix(order_id))
        file.touch(0o600)
        file.write_text(text)
        registry = Registry(settings)
        registry.by_prefix(prefix(order_id))

        assert proxy.headers[-1]["Authorization"] == expected
        assert "secret" not in repr(registry._settings)


@pytest.mark.shows("kctl verifies the certificate of a schema registry, and can show its own")
def test_a_registry_with_tls_is_verified(apicurio: SchemaRegistry, order_id: int, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    tls.load_cert_chain(tmp_path / "server.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    trusting: dict[str, Any] = {"ca_file": str(certificate)}
    known: dict[str, Any] = {**trusting, "certificate_file": str(certificate), "key_file": str(tmp_path / "key.pem")}

    with FaultyRegistry(apicurio, tls) as proxy:
        with pytest.raises(RegistryUnusable, match="certificate verify failed"):
            Registry(RegistrySettings(proxy.url)).by_prefix(prefix(order_id))
        with pytest.raises(RegistryUnusable):
            Registry(RegistrySettings(proxy.url, **trusting)).by_prefix(prefix(order_id))
        found = Registry(RegistrySettings(proxy.url, **known)).by_prefix(prefix(order_id))

    assert found.name == "shop.Order"


def test_a_message_is_decoded_once_when_it_is_read(proxy: FaultyRegistry, order_id: int) -> None:
    calls: list[bytes | None] = []

    def decode(data: bytes | None, _: Headers) -> object:
        calls.append(data)
        return json.loads(data or b"null")

    message = Message("t", 0, 0, b"1", b'{"a": 1}', 0)
    try:
        decode_by(decode, decode)
        assert not calls
        assert message.decoded is message.decoded
        assert (message.decoded, message.decoded_key, calls) == ({"a": 1}, 1, [b'{"a": 1}', b"1"])
        decode_messages(Formats(value="avro", registry=RegistrySettings(proxy.url)))
        assert Message("t", 0, 0, b"k", framed(order_id, payload()), 0).decoded == VALUE
    finally:
        decode_by(lambda data, _: data, lambda data, _: data)
    assert Message("t", 0, 0, None, b"x", 0).decoded == b"x"


VIEWED = {
    "type": "record",
    "name": "shop.Viewed",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "amount", "type": "double"},
    ],
}
SHOWN = {"id": "a", "at": "2026-11-28 07:45:00+00:00", "raw": "\u00ff", "amount": "nan"}
NOT_FRAMED = "NotFramed: no schema id precedes it, and no header names one"


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.shows("`kctl kafka consume` prints decoded values with the name and id of the schema, or why it cannot")
def test_consume_prints_decoded_values(
    apicurio: SchemaRegistry, broker: KafkaBroker, config_file: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    record = {"id": "a", "at": 1795851900000, "raw": b"\xff", "amount": float("nan")}
    number = apicurio.register("viewed-value", VIEWED)
    schema, good = f"shop.Viewed (id {number})", framed(number, written(VIEWED, record))
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for each in (good, b"plain", None):
            producer.send("orders", each, key=b'{"k": 1}', partition=0)
    formats: dict[str, object] = {"value_format": "avro", "key_format": "json"}
    config = str(config_file(kafka=formats, schema_registry={"url": apicurio.url}))

    def consumed(form: str, *words: str) -> list[str]:
        ran = run_here(capfd, "kafka", "consume", "-t", "orders", "-p", "0", "--format", form, *words)
        assert ran.code == 0, ran.err
        return ran.out.splitlines()

    first, second, third = map(json.loads, consumed("json", "-c", config))
    assert (first["key_decoded"], first["value_decoded"], first["value_schema"]) == ({"k": 1}, SHOWN, schema)
    assert (second["value"], second["value_error"]) == ("plain", NOT_FRAMED)
    assert third["value"] is None
    assert "value_decoded" not in third
    assert consumed("value", "-c", config)[0] == f"{as_json(SHOWN, in_one_line=True)} {schema}"
    assert consumed("line", "-c", config)[1].endswith(NOT_FRAMED)
    assert consumed("value", "-b", broker.bootstrap_servers)[1] == "plain"
