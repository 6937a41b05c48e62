"""`kctl scale` follows `kctl advise` in a real group of stand-in workers with a known capacity."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl.demo.run import Producer
from kctl_agent.storage.file import FileStorage
from tests.conformance.given import fill
from tests.conftest import eventually
from tests.integration.conftest import Master
from tests.integration.sinkers import place, sinkers, storage
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

__all__ = ["place", "storage"]

CAPACITY = 300
PARTITIONS = 32
FOLLOWED_SECONDS = 200
RULES: dict[str, object] = {
    "window_seconds": 60,
    "up_after_seconds": 3,
    "max_up": 4,
    "gap_seconds": 4,
    "pause_seconds": 10,
    "catch_up_seconds": 30,
}


@pytest.mark.timeout(400)
@pytest.mark.shows("following the advice meets a load of 2 (short), 4 and 8 times what a worker can do, with its event")
@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.long), pytest.param(8, marks=pytest.mark.long)])
def test_following_the_advice_meets_the_load(times: int, broker: KafkaBroker, master: Callable[..., Master]) -> None:
    topic = f"advised-{times}"
    topics.create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    one = master(
        kafka={"topics": [topic], "session_timeout_seconds": 6.0},
        workers={"count": 1, "max_records_per_batch": CAPACITY // 2},
        advice=RULES,
        spark={"conf": {"KCTL_TEST_JOINS": "1", "KCTL_TEST_READS": "9999", "KCTL_TEST_CAPACITY": str(CAPACITY)}},
    )
    producer = Producer(broker.bootstrap_servers, topic, PARTITIONS, times * CAPACITY)
    producer.start()
    try:
        outcome = eventually(lambda: followed(one), FOLLOWED_SECONDS, "the advice is followed, with an outcome")
        found = advice(one)
    finally:
        producer.stop()

    assert outcome["is_met"], outcome
    assert found["current"] > times, "the utilisation leaves room"
    assert found["capacity_per_second"] == pytest.approx(CAPACITY, rel=0.1)
    marks = json.loads(one.get("/api/v1/history"))["marks"]
    assert outcome["text"] in [event["text"] for event in marks if event["kind"] == "advice"]


@pytest.mark.shows("sinkers are advised by what waits in the storage and by what a real handler takes")
def test_sinkers_are_advised_for_what_waits(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 40_000)
    one = master(
        sinkers=sinkers("takes_a_millisecond_each", count=1, batch_size=100),
        workers={"count": 1},
        advice={**RULES, "catch_up_seconds": 10},
    )

    found = eventually(lambda: (now := advice(one))["answer"] == "sinkers" and now, 60, "more sinkers are advised")

    assert found["needed_sinkers"] >= 3, "less than 40,000 messages in ten seconds, at not quite 1,000 a second"
    assert 3 <= found["sinkers"] <= 4, "at most four times as many"


def advice(one: Master) -> Any:
    return json.loads(one.kctl("advise", "-o", "json").stdout)


def followed(one: Master) -> Any:
    found = advice(one)
    print(f"{time.monotonic():.1f}", found["answer"], found["reason"], found["current"], found["workers"])
    if found["answer"] == "workers":
        done = one.kctl("scale", f"workers={found['workers']}", "--wait")
        assert done.returncode == 0, done.stderr
    return found["outcome"]
