"""The handler gets every message byte for byte, with any content and compression, over TLS and SASL; so do rows of a
table; aborted transactions are left out."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer

from tests.acceptance.fleets import SETTLE_SECONDS, Fleet, MakeFleet
from tests.acceptance.handlers import KEEPER, kept
from tests.conftest import eventually
from tests.servers import kafka_tools
from tests.servers.kafka_broker import kafka_command
from tests.servers.secured_broker import PASSWORD, SecuredBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Sent:
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def all_unicode() -> list[Sent]:
    """Every code point that UTF-8 can encode, in pieces of less than a megabyte."""
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    return [
        Sent(b"unicode", "".join(points[begin : begin + 250_000]).encode()) for begin in range(0, len(points), 250_000)
    ]


PLAIN = [
    Sent(None, b"no key"),
    Sent(b"", b"empty key"),
    Sent(b"tombstone", None),
    Sent(b"empty value", b""),
    Sent("schlüssel \U0001f511".encode(), "grüße \u2603 \U0001f680".encode()),
    Sent(bytes(range(128, 256)), bytes(range(256)) * 3),
    Sent(b"k", b"v", (("a", b"1"), ("a", b"2"), ("empty", b""), ("binär", bytes(range(256))))),
    Sent(b"megabyte", bytes(range(256)) * 3906),
]
LINES = ["", "grüße \u2603 \U0001f680", "x" * 100_000, "last"]


@pytest.fixture
def secured() -> Iterator[SecuredBroker]:
    with SecuredBroker.running() as made:
        yield made


def fleet_of(secured: SecuredBroker, make_fleet: MakeFleet, **more: str) -> Fleet:
    kafka = {"isolation_level": "read_committed", **secured.settings("boss")}
    return make_fleet(
        on=secured.broker,
        partitions=1,
        bootstrap_servers=secured.sasl_tls,
        kafka="\n".join(f"{key} = {json.dumps(value)}" for key, value in kafka.items()),
        **more,
    )


def send_everything(fleet: Fleet) -> list[Sent]:
    sent: list[Sent] = []
    for codec in CODECS:
        for produce in (by_kafka_python, by_kctl, by_kafkas_own):
            sent += produce(fleet, codec)
    return sent + in_transactions(fleet)


def by_kafka_python(fleet: Fleet, codec: str) -> list[Sent]:
    messages = PLAIN + (all_unicode() if codec == "zstd" else [])
    producer = KafkaProducer(
        bootstrap_servers=fleet.broker.bootstrap_servers, compression_type=None if codec == "none" else codec
    )
    for each in messages:
        producer.send(fleet.topic, each.value, key=each.key, headers=list(each.headers), partition=0)
    producer.flush()
    producer.close()
    return messages


def by_kctl(fleet: Fleet, codec: str) -> list[Sent]:
    lines = [line.encode() for line in LINES] + [bytes(range(128, 256))]
    file = fleet.directory / "lines"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    fleet.kctl("kafka", "produce", "-t", fleet.topic, "-p", "0", "--file", str(file), "--codec", codec)
    return [Sent(None, line) for line in lines]


def by_kafkas_own(fleet: Fleet, codec: str) -> list[Sent]:
    """Sends what kafka-python cannot: a header without a value, and an empty message."""
    subprocess.run(
        kafka_command(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", fleet.broker.bootstrap_servers, "--topic", fleet.topic),
            *("--compression-codec", codec, "--sync"),
            *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
            *("--reader-property", "parse.headers=true", "--reader-property", "headers.delimiter=|"),
            *("--reader-property", "null.marker=NULL"),
        ),
        input="".join(f"a:1,nothing:NULL|{codec}|{line}\n" for line in LINES).encode() + b"NULL|NULL|NULL\n",
        check=True,
        capture_output=True,
    )
    headers = (("a", b"1"), ("nothing", None))
    return [*(Sent(codec.encode(), line.encode(), headers) for line in LINES), Sent(None, None)]


def in_transactions(fleet: Fleet) -> list[Sent]:
    producer = KafkaProducer(bootstrap_servers=fleet.broker.bootstrap_servers, transactional_id=fleet.topic)
    producer.init_transactions()
    for word, is_kept in (("taken back", False), ("committed", True), ("taken back too", False)):
        producer.begin_transaction()
        for number in range(5):
            producer.send(fleet.topic, f"{word} {number}".encode(), partition=0)
        producer.flush()
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    producer.close()
    return [Sent(None, f"committed {number}".encode()) for number in range(5)]


def test_every_message_of_every_codec_reaches_the_handler_once(secured: SecuredBroker, make_fleet: MakeFleet) -> None:
    fleet = fleet_of(secured, make_fleet, sinkers=f'count = 1\nhandler = "{KEEPER}"')
    sent = send_everything(fleet)

    fleet.start("worker-0")
    eventually(lambda: len(kept(fleet.ledger)) == len(sent), SETTLE_SECONDS, "the handler has been given everything")
    eventually(lambda: fleet.rpc("kafka_lag")["total"] == 0, SETTLE_SECONDS, "the lag is 0")

    given = [Sent(message.key, message.value, message.headers) for message in kept(fleet.ledger)]
    assert given == sent
    [row] = fleet.offsets().values()
    [reported] = kafka_tools.describe_group(secured.plain, fleet.group)
    assert (row["current_offset"], row["kafka_max_offset"], row["remaining_count"]) == (
        reported.current_offset,
        reported.log_end_offset,
        reported.lag,
    )
    assert (reported.lag, reported.log_end_offset) == (0, len(sent) + 10 + 3), "the control records lie at the end"
    [asked] = json.loads(fleet.kctl("kafka", "lag", "-c", str(fleet.config), "-o", "json").stdout)["rows"]
    assert (asked["current_offset"], asked["lag"]) == (row["current_offset"], 0)
    assert PASSWORD not in everything_shown(fleet)


def test_every_message_of_every_codec_is_a_row(secured: SecuredBroker, make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "messages"
    fleet = fleet_of(secured, make_fleet, storage=f'mode = "lake"\nuri = "{table.as_uri()}"')
    sent = send_everything(fleet)

    fleet.start("worker-0")
    eventually(lambda: fleet.rpc("kafka_lag")["total"] == 0, SETTLE_SECONDS, "the lag is 0")

    rows = DeltaTable(table).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [as_sent(row) for row in rows] == sent
    assert {(row["topic"], row["partition"]) for row in rows} == {(fleet.topic, 0)}
    assert PASSWORD not in everything_shown(fleet)


def as_sent(row: dict[str, Any]) -> Sent:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return Sent(row["key"], row["value"], headers)


def everything_shown(fleet: Fleet) -> str:
    shown = [path.read_text(errors="replace") for path in fleet.directory.rglob("*") if path.is_file()]
    shown += [fleet.kctl(*words, exit_code=None).stdout for words in (("status",), ("config", "show"))]
    shown += [str(fleet.rpc(command)) for command in ("workers", "describe", "metadata_brokers")]
    for path in ("/api/v1/workers", "/metrics"):
        with urllib.request.urlopen(f"{fleet.url()}{path}", timeout=10) as answer:
            shown.append(answer.read().decode())
    for row in fleet.workers().values():
        shown.append(Path(f"/proc/{row['pid']}/cmdline").read_text())
    return "\n".join(shown)
