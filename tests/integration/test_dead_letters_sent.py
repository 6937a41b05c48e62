"""Dead letters are sent or requeued while the command is killed repeatedly: real broker, real processes."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from kctl.dead_letters.sending import HEADER
from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.redis import RedisStorage
from kctl_agent.storage.selection import Selection
from tests.conftest import eventually
from tests.integration.conftest import config_in
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

KILLS = int(os.environ.get("KCTL_TEST_KILLS", "3"))  # 20 in a full run
COUNT = 2000 * (KILLS + 1)
PARTITIONS = 2


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.long)])
def storage(request: pytest.FixtureRequest, broker: KafkaBroker, tmp_path: Path) -> Iterator[Storage]:
    with ExitStack() as stack:
        settings: dict[str, object] = {}
        storage: Storage
        if request.param == "redis":
            server = stack.enter_context(RedisServer(tmp_path / "redis"))
            storage = stack.enter_context(closing(RedisStorage(server.url, tmp_path.name)))
            settings = {"mode": "redis", "url": server.url}
        else:
            storage = stack.enter_context(closing(FileStorage(tmp_path / "data" / "storage.sqlite")))
        config_in(tmp_path, broker, storage=settings)
        storage.prepare()
        yield storage


def fill(storage: Storage) -> None:
    for begin in range(0, COUNT, 1000):
        messages = [
            Message("t", 0, n, b"k%d" % n, b"v%d" % n, 0, (("n", b"%d" % n), ("null", None)))
            for n in range(begin, begin + 1000)
        ]
        storage.dead_letter(messages, "no such customer")


@pytest.fixture
def config(storage: Storage, tmp_path: Path) -> Path:
    return tmp_path / "kctl.toml"


@pytest.fixture(scope="module")
def parked(broker: KafkaBroker) -> str:
    topics.create_topic(broker.bootstrap_servers, "parked", PARTITIONS)
    return "parked"


def started(config: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kctl", "-c", str(config), "storage", "dead", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_while(config: Path, words: tuple[str, ...], left: Callable[[], int]) -> str:
    for _ in range(KILLS):
        before = left()
        process = started(config, *words)
        eventually(lambda process=process, before=before: left() < before or process.poll() is not None)
        process.kill()
        process.communicate()
    out, err = started(config, *words).communicate(timeout=120)
    assert err == "", err
    return out


@pytest.mark.shows("dead letters sent to a topic survive kills; repeated ones carry the same header")
def test_under_kills_all_is_sent_and_repeats_are_marked(
    storage: Storage, config: Path, broker: KafkaBroker, parked: str
) -> None:
    fill(storage)
    begin = ends(broker, parked)

    out = killed_while(config, ("send", parked), storage.count_dead)

    assert out.endswith(f" dead letters sent to {parked}\n")
    assert storage.count_dead() == 0
    names, found = defaultdict(set), 0
    for record in records(broker, parked, begin):
        headers = dict(record.headers)
        assert (record.key, record.value) == (b"k" + headers["n"], b"v" + headers["n"])
        names[int(headers["n"])].add(headers[HEADER])
        found += 1
    assert sorted(names) == list(range(COUNT))
    assert all(len(each) == 1 for each in names.values())
    assert len({name for each in names.values() for name in each}) == COUNT
    assert COUNT <= found <= COUNT + 1000 * KILLS


@pytest.mark.shows("dead letters requeued under kills are neither lost nor doubled")
def test_messages_requeued_under_kills_are_all_there_once(storage: Storage, config: Path) -> None:
    fill(storage)

    out = killed_while(config, ("requeue",), storage.count_dead)

    assert out.endswith(" dead letters requeued\n")
    assert (storage.count_dead(), storage.stats().pending) == (0, COUNT)
    offsets = sorted(message.offset for block in storage.blocks() for message in block.messages())
    assert offsets == list(range(COUNT))


@pytest.mark.parametrize("storage", ["file"], indirect=True)
def test_what_cannot_be_sent_stays_and_has_its_reason(storage: Storage, config: Path, parked: str) -> None:
    large = b"x" * 1_500_000  # a broker accepts 1 MiB unless its topic is configured otherwise
    for partition, (key, value) in enumerate([(b"k", None), (None, None), (b"k", large), (None, b"v")], 1):
        storage.dead_letter([Message("u", partition, 7, key, value, 0)], "no such customer")

    missing = started(config, "send", "nowhere", "--expect", "4")
    out, err = missing.communicate(timeout=60)
    assert (missing.returncode, out, storage.count_dead()) == (11, "", 4)
    assert "topic nowhere" in err

    process = started(config, "send", parked, "--topic", "u", "--expect", "4")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "2 were sent, 2 cannot be sent and stay, for example u-" in err
    assert [each.block.partition for each in storage.dead(Selection(topic="u"))] == [2, 3]


def ends(broker: KafkaBroker, topic: str) -> dict[TopicPartition, int]:
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        found: dict[TopicPartition, int] = consumer.end_offsets([TopicPartition(topic, n) for n in range(PARTITIONS)])
    return found


def records(broker: KafkaBroker, topic: str, begin: dict[TopicPartition, int]) -> Iterator[Any]:
    end = ends(broker, topic)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign(list(begin))
        for tp, offset in begin.items():
            consumer.seek(tp, offset)
        while any(consumer.position(tp) < end[tp] for tp in end):
            for found in consumer.poll(1000).values():
                yield from found
