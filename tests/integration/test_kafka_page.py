"""The commands of docs/kafka-commands.md, run in a known state: `python -m tests.integration.kafka_page` updates the
page.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from kctl.cli.entry import run
from kctl.cli.kafka.commands import COMMANDS
from tests.consumers import until_assigned
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
PAGE = Path(__file__).parents[2] / "docs" / "kafka-commands.md"
_BLOCK = re.compile(r"(```console\n\$ ([^\n]*)\n)(.*?)(```\n)", re.DOTALL)
_FIRST_TIMESTAMP = 1_767_225_600_000  # 2026-01-01T00:00:00Z, for a topic without retention
_VARYING = (
    (r"127\.0\.0\.1:(?!1\b)\d+", "SERVER"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\b1[789]\d{11}\b", "NOW"),
    (r"(127\.0\.0\.1 +)\d{5}", r"\1PORT"),
    (r"kafka-python-\d[\d.]*", "CLIENT"),
    (r"in [\d.]+ s: [\d,]+ a second", "in a moment"),
    (r" +", " "),
)


def blocks(page: str) -> list[tuple[str, str]]:
    return [(match[2], match[3]) for match in _BLOCK.finditer(page)]


def normalised(output: str) -> str:
    """Removes what differs between runs: ports, ids, the time of day, and the column widths that depend on them."""
    for pattern, word in _VARYING:
        output = re.sub(pattern, word, output)
    return "\n".join(line.strip() for line in output.strip().splitlines())


def output_of(command: str, env: Mapping[str, str]) -> str:
    """Returns stdout, then stderr, then an exit code other than 0. `| head -N` is applied."""
    command, _, most = command.partition(" | head -")
    raw, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(command)[1:], env)
    reported = raw.getvalue().decode() + err.getvalue()
    if most:
        return "".join(reported.splitlines(keepends=True)[: int(most)])
    return reported + (f"(exit code {code})\n" if code else "")


@contextlib.contextmanager
def known_state(servers: str, folder: Path) -> Iterator[dict[str, str]]:
    topics.create_topic(servers, "orders", 3, {"retention.ms": "-1"})
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(42):
        partition = 0 if number < 20 else 1 if number < 40 else 2
        value = f'{{"order": {number}}}'.encode()
        sent = producer.send(
            "orders", value, str(number).encode(), partition=partition, timestamp_ms=_FIRST_TIMESTAMP + number * 1000
        )
    producer.flush()
    sent.get(10)
    producer.close()
    config = folder / "kctl.toml"
    config.write_text(f'[kafka]\nbootstrap_servers = "{servers}"\ngroup = "billing"\ntopics = ["orders"]\n')
    readers = [
        KafkaConsumer(bootstrap_servers=servers, group_id=group, client_id=f"{group}-1", enable_auto_commit=False)
        for group in ("audit", "billing")
    ]
    try:
        for reader, offsets in zip(readers, ((12, 20, 0), (18, 15)), strict=True):
            reader.subscribe(["orders"])
            until_assigned(reader)
            reader.commit(
                {TopicPartition("orders", n): OffsetAndMetadata(offset, "", -1) for n, offset in enumerate(offsets)}
            )
        readers.pop(0).close()
        yield {**os.environ, "KCTL_CONFIG": str(config)}
    finally:
        for reader in readers:
            reader.close()


@pytest.mark.shows("every output in docs/kafka-commands.md is what its command prints")
def test_every_output_on_the_page_is_what_is_printed(short_dir: Path) -> None:
    shown = blocks(PAGE.read_text(encoding="utf-8"))

    with KafkaBroker(short_dir / "broker") as broker, known_state(broker.bootstrap_servers, short_dir) as env:
        printed = [output_of(command, env) for command, _ in shown]

    for (command, reported), real in zip(shown, printed, strict=True):
        assert normalised(reported) == normalised(real), f"{command}; python -m tests.integration.test_kafka_page"


def test_every_command_is_on_the_page_with_its_output() -> None:
    commands = [command for command, _ in blocks(PAGE.read_text(encoding="utf-8"))]

    for name in COMMANDS:
        assert any(command.startswith(f"kctl kafka {name} ") or command == f"kctl kafka {name}" for command in commands)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place,
        KafkaBroker(Path(place, "broker")) as broker,
        known_state(broker.bootstrap_servers, Path(place)) as env,
    ):
        page = _BLOCK.sub(lambda m: f"{m[1]}{output_of(m[2], env)}{m[4]}", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    sys.stderr.write(f"{PAGE.name}: {len(blocks(page))} commands\n")


if __name__ == "__main__":
    main()
