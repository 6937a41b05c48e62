"""Many partitions: one question per broker, and a second is enough."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import topics_of
from kctl.kafka.lag import read_lag
from kctl.kafka.offsets import commit, log_offsets
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
PARTITIONS = 3000
KEYS = [("wide", number) for number in range(PARTITIONS)]
MEMORY = "/dev/shm"
ROOM_BYTES = 1 << 30
SETUP_SECONDS = 240


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a committed topic of 3,000 partitions. It is killed at the end, because a clean stop takes half a
    minute. Creating the topic waits for the disk thousands of times: 15 s on a quiet machine, more than a minute on a
    busy one, 5 s in memory."""
    folder = Path(tempfile.mkdtemp(prefix="b", dir=MEMORY if has_room(MEMORY) else "/tmp"))
    broker = KafkaBroker(folder)
    broker.start_timeout_seconds = SETUP_SECONDS
    try:
        broker.start()
        patient = {"request_timeout_ms": SETUP_SECONDS * 1000, "bootstrap_timeout_ms": SETUP_SECONDS * 1000}
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, **patient) as admin:
            admin.create_topics({"wide": {"num_partitions": PARTITIONS, "replication_factor": 1}})
        with ClusterConnection(plain(broker.bootstrap_servers), SETUP_SECONDS) as connection:
            while not _all_answer(connection):
                connection.pause()
            assert set(commit(connection, "readers", dict.fromkeys(KEYS, 0)).values()) == {None}
        yield broker.bootstrap_servers
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def has_room(folder: str) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM_BYTES


def _all_answer(connection: ClusterConnection) -> bool:
    known = topics_of(connection.metadata(["wide"]) if connection.brokers else connection.open(["wide"]))
    return {each.error for each in log_offsets(connection, known, KEYS).values()} == {None}


@pytest.mark.shows("the lag of 3,000 partitions takes brokers + 2 requests and under 2 s")
@pytest.mark.alone
@pytest.mark.long
def test_the_lag_of_three_thousand_partitions_takes_one_question_per_broker(servers: str) -> None:
    """DescribeGroups lists the members; the offsets take one question per leader and coordinator."""
    began = time.monotonic()
    with ClusterConnection(plain(servers), 10) as connection:
        known = topics_of(connection.open(["wide"]))
        rows, problems = read_lag(connection, ["readers"], known)
        asked = dict(connection.asked)
    seconds = time.monotonic() - began

    assert problems == []
    assert [row.lag for row in rows] == [0] * PARTITIONS
    assert asked == {"Metadata": 1, "OffsetFetch": 1, "ListOffsets": 1, "DescribeGroups": 1}
    assert sum(asked.values()) - asked["DescribeGroups"] <= len(connection.brokers) + 2
    assert seconds < 2
