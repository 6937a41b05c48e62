"""Unreadable records stop only their own partitions, however many have one."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from tests.acceptance import transforms
from tests.acceptance.fleets import SETTLE_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import lake, places
from tests.acceptance.tables import sent as everything_sent
from tests.acceptance.transforms import POISON
from tests.conftest import eventually

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
PRICE = "the price of order 7 is no number"
LINES = Path(transforms.__file__).read_text(encoding="utf-8").splitlines()
[RAISED_AT] = [number for number, line in enumerate(LINES, 1) if PRICE in line]
WHY = f"ValueError: {PRICE} (transforms.py:{RAISED_AT})"
READ_SECONDS = 90.0


CHOKES = 'transform = "tests.acceptance.transforms:chokes"\non_unreadable = "dead_letter"'
NANOSECONDS = 1_764_171_234_567_890_123
NO_LIMIT = {"message.timestamp.after.max.ms": str(2**63 - 1)}


def isolated(fleet: Fleet) -> list[dict[str, Any]]:
    fleet.check()
    return fleet.workers().get("worker-0", {}).get("isolated") or []


@pytest.mark.shows("a record that cannot be read stops its own partition and no other, however many have one")
@pytest.mark.long
@pytest.mark.parametrize(("partitions", "bad"), [(6, 2), (40, 8), (40, 20), (100, 12)])
def test_good_partitions_are_read_within_90_seconds_and_each_bad_one_is_named_until_its_record_is_stepped_over(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, partitions: int, bad: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    fleet = make_fleet(
        workers=1, partitions=partitions, workers_more='transform = "tests.acceptance.transforms:chokes"'
    )
    fleet.start("worker-0")
    fleet.send(2 * partitions)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what is good is stored and committed")
    pid = fleet.workers()["worker-0"]["pid"]
    poisoned = [number * partitions // bad for number in range(bad)]
    good = [number for number in range(partitions) if number not in poisoned]

    fleet.send_to(*range(partitions))
    fleet.send_to(*poisoned, value=POISON)
    fleet.send_to(*range(partitions))
    began = time.monotonic()
    eventually(lambda: fleet.has_committed(*good), READ_SECONDS, "every good partition is read again")
    print(f"{partitions} partitions, {bad} bad: good ones after {time.monotonic() - began:.1f} s")
    expected = [{"topic": fleet.topic, "partition": each, "why": WHY, "offset": 3} for each in poisoned]
    eventually(lambda: isolated(fleet) == expected, 2 * READ_SECONDS, "each bad one is named")
    print(f"all isolated after {time.monotonic() - began:.1f} s")
    fleet.send_to(*good)
    eventually(lambda: fleet.has_committed(*good), SETTLE_SECONDS, "good ones are read while bad ones are retried")

    began = time.monotonic()
    for each in poisoned:
        fleet.kctl("seek", "--topic", fleet.topic, "--partition", str(each), "--to", "4", "--yes")
    print(f"seeks {time.monotonic() - began:.1f} s")
    eventually(fleet.is_caught_up, READ_SECONDS, "the others are read too")
    eventually(lambda: isolated(fleet) == [], SETTLE_SECONDS, "none is isolated")
    row = fleet.workers()["worker-0"]
    assert (row["pid"], row["supervisor"]["restarts"]) == (pid, 0), "queries were begun again, not the process"
    assert fleet.audit().stored == fleet.sent.total() - bad


def send_bad_ones(fleet: Fleet) -> None:
    with KafkaProducer(bootstrap_servers=fleet.broker.bootstrap_servers, acks="all") as producer:
        for value in (b"g", POISON, b"g", POISON, POISON, b"g"):
            producer.send(fleet.topic, value, key=b"k", headers=[("h", b"\x00")], partition=0, timestamp_ms=1_000)
        for _ in range(700):
            producer.send(fleet.topic, b"nano", key=None, partition=0, timestamp_ms=NANOSECONDS)
        producer.send(fleet.topic, b"g", partition=0)
        producer.flush()
    fleet.sent[TopicPartition(fleet.topic, 0)] += 707


STORAGES = ["file", *(pytest.param(each, marks=pytest.mark.long) for each in ("redis", "lake"))]


@pytest.mark.shows("with on_unreadable = dead_letter an unreadable record is kept with its bytes and skipped")
@pytest.mark.parametrize("mode", STORAGES)
def test_a_record_that_cannot_be_read_becomes_a_dead_letter_also_where_sparks_own_source_fails_at_it(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, mode: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    storage = lake(short_dir / "orders") if mode == "lake" else ""
    if mode == "redis":
        storage = f'mode = "redis"\nurl = "{request.getfixturevalue("redis_server").url}"'
    fleet = make_fleet(partitions=2, workers_more=CHOKES, storage=storage, topic_configs=NO_LIMIT)
    fleet.start("worker-0")
    fleet.send(4)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what is good is stored and committed")

    send_bad_ones(fleet)
    fleet.send_to(1)
    began = time.monotonic()
    eventually(fleet.is_caught_up, 2 * READ_SECONDS, "all is stored, or a dead letter")
    print(f"{mode}: after {time.monotonic() - began:.1f} s")

    rows = fleet.dead_letters()
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, at) for at in (3, 5, 6, *range(8, 708))]
    assert {row["error"] for row in rows[:3]} == {WHY}
    assert {row["error"] for row in rows[3:]} == {f"TimestampOverflow: {NANOSECONDS} ms is beyond Spark's range"}
    poison, nano = (
        json.loads(fleet.kctl("storage", "dead", "show", each["id"], "-o", "json").stdout)
        for each in (rows[0], rows[-1])
    )
    assert (poison["key"], poison["value"], poison["timestamp"]) == ("k", POISON.decode(), 1000)
    assert [each["key"] for each in poison["headers"]] == ["h"]
    assert (nano["key"], nano["value"], nano["timestamp"]) == (None, "nano", -1 if mode == "lake" else NANOSECONDS)
    assert isolated(fleet) == []
    if mode == "lake":
        dead = {(fleet.topic, row["partition"], row["offset"]) for row in rows}
        assert places(short_dir / "orders") == {at: 1 for at in everything_sent(fleet) if at not in dead}
    else:
        assert fleet.audit().stored == fleet.sent.total() - len(rows)
