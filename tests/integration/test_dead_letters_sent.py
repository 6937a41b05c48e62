"""Dead letters are sent or requeued while the command is killed repeatedly: real broker, real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
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
from tests.integration.conftest import TOPIC
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

KILLS = int(os.environ.get("KCTL_TEST_KILLS", "3"))
"""20 in a full run."""
COUNT = 2000 * (KILLS + 1)
PARKED = "parked"
PARTITIONS = 2


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "redis":
        with RedisServer(tmp_path / "redis") as server, closing(RedisStorage(server.url, "g")) as redis:
            (tmp_path / "kctl.toml").write_text(f'[storage]\nmode = "redis"\nurl = "{server.url}"\n')
            yield filled(redis)
    else:
        with closing(FileStorage(tmp_path / "data" / "storage.sqlite")) as file:
            (tmp_path / "kctl.toml").write_text('[storage]\nmode = "file"\n')
            yield filled(file)


def filled(storage: Storage) -> Storage:
    storage.prepare()
    for begin in range(0, COUNT, 1000):
        messages = [
            Message("t", 0, n, b"k%d" % n, b"v%d" % n, 0, (("n", b"%d" % n), ("null", None)))
            for n in range(begin, begin + 1000)
        ]
        storage.dead_letter(messages, "no such customer")
    return storage


@pytest.fixture
def config(storage: Storage, broker: KafkaBroker, tmp_path: Path) -> Path:
    path = tmp_path / "kctl.toml"
    kafka = f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\ngroup = "g"\ntopics = ["{TOPIC}"]\n'
    path.write_text(kafka + path.read_text())
    return path


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
def test_under_kills_all_is_sent_and_repeats_are_marked(storage: Storage, config: Path, broker: KafkaBroker) -> None:
    if not topics.has_topic(broker.bootstrap_servers, PARKED):
        topics.create_topic(broker.bootstrap_servers, PARKED, PARTITIONS)
    begin = ends(broker)

    out = killed_while(config, ("send", PARKED), storage.count_dead)

    assert out.endswith(f" dead letters sent to {PARKED}\n")
    assert storage.count_dead() == 0
    names, found = defaultdict(set), 0
    for record in records(broker, begin):
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
    out = killed_while(config, ("requeue",), storage.count_dead)

    assert out.endswith(" dead letters requeued\n")
    assert (storage.count_dead(), storage.stats().pending) == (0, COUNT)
    offsets = sorted(message.offset for block in storage.blocks() for message in block.messages())
    assert offsets == list(range(COUNT))


def test_a_topic_that_is_not_there_is_named_and_nothing_is_changed(storage: Storage, config: Path) -> None:
    process = started(config, "send", "nowhere", "--expect", str(COUNT))

    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (11, "")
    assert "topic nowhere" in err
    assert storage.count_dead() == COUNT


@pytest.mark.parametrize("storage", ["file"], indirect=True)
def test_one_that_cannot_be_sent_stays_and_the_others_go(storage: Storage, config: Path, broker: KafkaBroker) -> None:
    if not topics.has_topic(broker.bootstrap_servers, PARKED):
        topics.create_topic(broker.bootstrap_servers, PARKED, PARTITIONS)
    large = b"x" * 1_500_000  # a broker accepts 1 MiB unless its topic is configured otherwise
    for partition, (key, value) in enumerate([(b"k", None), (None, None), (b"k", large), (None, b"v")], 1):
        storage.dead_letter([Message("u", partition, 7, key, value, 0)], "no such customer")

    process = started(config, "send", PARKED, "--topic", "u", "--expect", "4")
    out, err = process.communicate(timeout=120)

    assert (process.returncode, out) == (1, "")
    assert "2 were sent, 2 cannot be sent and stay, for example u-" in err
    assert [each.block.partition for each in storage.dead(Selection(topic="u"))] == [2, 3]


def ends(broker: KafkaBroker) -> dict[TopicPartition, int]:
    partitions = [TopicPartition(PARKED, number) for number in range(PARTITIONS)]
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        found: dict[TopicPartition, int] = consumer.end_offsets(partitions)
    return found


def records(broker: KafkaBroker, begin: dict[TopicPartition, int]) -> Iterator[Any]:
    end = ends(broker)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign(list(begin))
        for tp, offset in begin.items():
            consumer.seek(tp, offset)
        while any(consumer.position(tp) < end[tp] for tp in end):
            for found in consumer.poll(1000).values():
                yield from found
