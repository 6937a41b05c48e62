"""Kafka to an Iceberg table, each message once: counted in the table by pyiceberg and by Iceberg's own implementation,
whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Eventually, Fleet
from tests.acceptance.tables import IcebergLake, later, sent
from tests.java_iceberg import java_iceberg

pytestmark = [pytest.mark.real]

KILLS = 2
ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(short_dir: Path) -> Iterator[IcebergLake]:
    made = IcebergLake(short_dir)
    yield made
    made.close()


def send_odd(fleet: Fleet) -> None:
    """A message without a key, but with headers."""
    producer = KafkaProducer(bootstrap_servers=fleet.broker.bootstrap_servers, acks="all")
    producer.send(fleet.topic, b"", headers=[("trace", b"7"), ("empty", b"")], partition=0)
    producer.close()
    fleet.sent[TopicPartition(fleet.topic, 0)] += 1


def positions(lake: IcebergLake, fleet: Fleet) -> dict[int, int]:
    """Of each partition, what the newest snapshot has in its summary; read without kctl."""
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    [text] = [
        text
        for name, text in snapshot.summary.additional_properties.items()
        if name.startswith("kctl.offsets/") and name.endswith(f"/{fleet.group}/{fleet.topic}")
    ]
    return {int(partition): offset for partition, offset in json.loads(text)["next"].items()}


def test_what_is_produced_is_in_an_iceberg_table_once_however_often_the_worker_is_killed(
    make_fleet: Callable[..., Fleet], eventually: Eventually, lake: IcebergLake
) -> None:
    drawn = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(partitions=3, storage=lake.settings())
    fleet.send(3000)
    send_odd(fleet)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert lake.places() == sent(fleet)
    odd = [row for row in lake.columns().to_pylist() if row["key"] is None]
    assert [(row["value"], row["headers"]) for row in odd] == [
        (b"", [{"key": "trace", "value": b"7"}, {"key": "empty", "value": b""}])
    ]

    load = fleet.load(2000)
    for _ in range(KILLS):
        before = lake.version()
        eventually(lambda: lake.version() > before + 1, START_SECONDS, "batches are stored")  # noqa: B023
        pid = fleet.workers()["worker-0"]["pid"]
        eventually(later(drawn.uniform(0, 0.5)), 5, "the moment has come")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: fleet.is_running("worker-0") and _pid(fleet) != pid, START_SECONDS, "it runs again")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert lake.places() == sent(fleet)
    with java_iceberg() as java:
        rows = java.rows(lake.table().metadata_location, "topic", "partition", "offset")
    assert Counter((topic, int(partition), int(offset)) for topic, partition, offset in rows) == sent(fleet)
    assert positions(lake, fleet) == {tp.partition: count for tp, count in fleet.sent.items()}
    assert [column.name for column in lake.table().schema().columns] == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip


def test_dead_letters_of_an_iceberg_table_go_through_the_repaired_transform_and_the_table_is_partitioned(
    make_fleet: Callable[..., Fleet],
    eventually: Eventually,
    lake: IcebergLake,
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KCTL_REPAIRED", str(short_dir / "repaired"))
    fleet = make_fleet(
        partitions=2,
        storage=lake.settings('partition_by = ["country"]'),
        workers_more='transform = "tests.acceptance.transforms:orders_when_repaired"',
    )
    shutil.copy(ROOT / "examples" / "items.py", fleet.directory)
    fleet.send(500, b'{"id": 7, "country": "a b/c", "items": ["x", "y"]}')
    fleet.send(100, b'{"id": 8, "items": ["z"]}')
    fleet.send(10, b"no JSON")
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    found = lake.columns()
    rows = Counter(zip(*(found[name].to_pylist() for name in ("id", "country", "item")), strict=True))
    assert rows == {(7, "a b/c", "x"): 500, (7, "a b/c", "y"): 500, (8, None, "z"): 100}
    assert lake.table().scan("country = 'a b/c'").to_arrow().num_rows == 1000
    status = json.loads(fleet.kctl("storage", "status", "-o", "json").stdout)
    assert (status["rows"], status["dead"], status["small_files"]) == (1100, 10, None)
    assert sum(partition["stored"] for partition in status["partitions"]) == 610

    (short_dir / "repaired").touch()
    assert fleet.kctl("storage", "requeue", "--dead").stdout == "10 messages put back\n"
    eventually(lambda: not waiting(fleet), SETTLE_SECONDS, "they are put back")

    again = Counter(lake.columns("id")["id"].to_pylist())
    kept = json.loads(fleet.kctl("storage", "status", "-o", "json").stdout)["dead"]
    assert 0 < again[9] < 10
    assert (again[9] + kept, again.total()) == (10, 1100 + again[9])


def waiting(fleet: Fleet) -> int:
    """Dead letters that no worker has put back yet."""
    return int(json.loads(fleet.kctl("storage", "status", "-o", "json").stdout)["requeued"])


def _pid(fleet: Fleet) -> Any:
    return fleet.workers()["worker-0"]["pid"]
