"""One collection, the same over RPC, HTTP, `/metrics` and the page; and what is gone or old is so everywhere."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit
from kctl.testing.kafka_broker import KafkaBroker
from tests.browser import browser, require_browser
from tests.servers import topics
from tests.servers.scripted_agent import Answers, ScriptedAgent

pytestmark = pytest.mark.real

TOPIC = "orders"
AWAY_SECONDS = 300.0

Eventually = Callable[..., Any]
Numbers = dict[tuple[str, int], tuple[Any, ...]]
"""Topic and partition to committed, end, lag, and the lag of its topic."""


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        body: str = response.read().decode()
    return body


def samples(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric to the values of its labels after `cluster` and `group`, and the value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(fetch(f"{url}/metrics")):
        for sample in family.samples:
            labels = tuple(value for name, value in sample.labels.items() if name not in ("cluster", "group"))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def of_rows(rows: list[dict[str, Any]], totals: dict[str, Any]) -> Numbers:
    return {
        (row["topic"], row["partition"]): (
            row["current_offset"],
            row["kafka_max_offset"],
            row["remaining_count"],
            row["worker"],
            totals["topics"][row["topic"]],
            totals["total"],
        )
        for row in rows
    }


def by_rpc(fleet: Any) -> Numbers:
    return of_rows(fleet.ask("offset_checker").result["rows"], fleet.ask("kafka_lag").result)


def by_http(fleet: Any, query: str = "") -> Numbers:
    body = json.loads(fetch(f"{fleet.about['http_url']}/api/v1/lag{query}"))
    return of_rows(body["rows"], body)


def by_metrics(fleet: Any, owners: Numbers) -> Numbers:
    """Metrics name no worker, so that is taken from `owners`."""
    found = samples(fleet.about["http_url"])
    names = ("kctl_consumer_committed_offset", "kctl_partition_end_offset", "kctl_consumer_lag")
    return {
        (topic, int(partition)): (
            *(found.get(name, {}).get((topic, partition)) for name in names),
            owners[topic, int(partition)][3],
            found.get("kctl_topic_lag", {}).get((topic,)),
            found["kctl_group_lag"][()],
        )
        for topic, partition in found["kctl_partition_end_offset"]
    }


def fill(broker: KafkaBroker, partitions: Sequence[int] = (0, 1), topic: str = TOPIC, messages: int = 100) -> None:
    """The stand-in workers claim 100 messages in their partitions; now the brokers have them."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for partition in partitions:
        for _ in range(messages):
            producer.send(topic, b"x", partition=partition)
    producer.flush()
    producer.close()


@pytest.fixture
def own_broker(short_dir: Path) -> Iterator[KafkaBroker]:
    """One that may be stopped."""
    with KafkaBroker(short_dir / "broker") as running:
        topics.create_topic(running.bootstrap_servers, TOPIC, 4)
        topics.create_topic(running.bootstrap_servers, "passing", 1)
        yield running


@pytest.mark.shows("one number over RPC, HTTP, `/metrics` and the page; what is old is so everywhere")
def test_the_same_numbers_come_over_rpc_http_metrics_and_the_page(
    master: Callable[..., Any], eventually: Eventually, broker: KafkaBroker
) -> None:
    require_browser()
    fill(broker)
    fleet = master()
    url = fleet.about["http_url"]
    eventually(lambda: 'part="committed"' in fetch(f"{url}/metrics"))
    expected = eventually(lambda: of_all_four(fleet) and by_rpc(fleet))

    # What is collected, not asked now, follows: the last collection may have come before the last worker.
    eventually(lambda: by_http(fleet) == expected, what="HTTP")
    assert by_http(fleet, "?live=1") == expected
    eventually(lambda: by_metrics(fleet, expected) == expected, what="metrics")
    assert [numbers[3] for numbers in expected.values()] == ["worker-0", "worker-1", None, None]
    with browser() as page:
        page.get(url)
        table = "[...document.querySelectorAll('#partitions tbody tr')]"
        script = f"return {table}.map(row => [...row.cells].map(cell => cell.textContent))"
        reported = {key: tuple("-" if each is None else str(each) for each in row[:4]) for key, row in expected.items()}

        def shown() -> dict[tuple[str, int], tuple[str, ...]]:
            rows = page.execute_script(script)
            return {(row[0], int(row[1])): (row[7], row[8], row[3], row[9]) for row in rows if len(row) > 9}

        eventually(lambda: shown() == reported, what="the page's table")
        lag = str(next(iter(expected.values()))[5])
        eventually(lambda: page.find_element("css selector", "dd[data-number=lag]").text == lag, what="the page's lag")

    def is_one_status() -> bool:
        # Two collections, if another came between the two questions.
        status, found = json.loads(fetch(f"{url}/api/v1/status")), samples(url)
        return bool(
            found["kctl_group_status"][status["status"],] == 1
            and sum(found["kctl_group_status"].values()) == 1
            and found["kctl_group_lag"][()] == status["lag"]
            and found["kctl_storage_messages"]["pending",] == pending == status["storage"]["pending"]
        )

    pending = fleet.ask("block_size").result["pending"]
    eventually(is_one_status, what="the same status and storage")
    assert json.loads(fetch(f"{url}/api/v1/storage"))["pending"] == pending


@pytest.mark.parametrize(("reset", "lag"), [("earliest", 6), ("latest", None)])
def test_the_lag_of_a_partition_that_was_never_committed_is_the_same_everywhere(
    master: Callable[..., Any], eventually: Eventually, broker: KafkaBroker, reset: str, lag: int | None
) -> None:
    topic = f"never-committed-{reset}"
    topics.create_topic(broker.bootstrap_servers, topic, 2)
    fill(broker, [0], topic)
    fill(broker, [1], topic, messages=10)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 1): 4})
    fleet = master(kafka={"topics": [topic], "auto_offset_reset": reset}, workers={"count": 1})

    def everywhere() -> set[int | None]:
        """The lag of partition 1, which no worker of the fleet reads; the stand-in has 60 of the other."""
        url, rows = fleet.about["http_url"], fleet.ask("offset_checker").result["rows"]
        by_page = json.loads(fetch(f"{url}/api/v1/lag?history=1"))
        offsets = json.loads(fetch(f"{url}/api/v1/offsets"))["rows"]
        found, status = samples(url), json.loads(fetch(f"{url}/api/v1/status"))
        totals = [
            fleet.ask("kafka_lag").result["total"],
            by_page["total"],
            status["lag"],
            found["kctl_group_lag"][()],
            found["kctl_topic_lag"][topic,],
        ]
        return {
            *(row["remaining_count"] for row in [*rows, *by_page["rows"], *offsets] if row["partition"] == 1),
            found["kctl_consumer_lag"].get((topic, "1")),
            *(total - 60 or None for total in totals),
        }

    def is_collected() -> bool:
        # A master that has just started may not have had the first answers of brokers and worker.
        known = samples(fleet.about["http_url"])
        ends, committed = known.get("kctl_partition_end_offset", {}), known.get("kctl_consumer_committed_offset", {})
        return (topic, "1") in ends and (topic, "0") in committed

    eventually(is_collected, what="brokers and worker have answered")
    eventually(lambda: everywhere() == {lag}, what="one lag")
    position = {"topic": topic, "partition": 1, "committed": None, "position": 8, "age_seconds": None}
    script = dict.fromkeys(("offset_checker", "kafka_lag"), Answers({"rows": [position]}))
    with ScriptedAgent(fleet.run_dir, "guest", script):
        eventually(lambda: everywhere() == {6 if reset == "earliest" else 2}, what="one lag with a position")


def of_all_four(fleet: Any) -> bool:
    return len(fleet.ask("offset_checker").result["rows"]) == 4


def test_what_is_gone_vanishes_and_what_is_old_has_its_age(
    master: Callable[..., Any], eventually: Eventually, own_broker: KafkaBroker
) -> None:
    fill(own_broker)
    fleet = master(
        kafka={
            "topics": ["orders", "passing"],
            "bootstrap_servers": own_broker.bootstrap_servers,
            "auto_offset_reset": "latest",
        },
        workers={"backoff_min_seconds": 60.0, "backoff_max_seconds": 60.0},
        status={"window_seconds": 1.0, "hold_seconds": 0.0},
        collect={"timeout_seconds": 1.0},
    )
    url = fleet.about["http_url"]
    eventually(lambda: ("passing", "0") in samples(url).get("kctl_partition_end_offset", {}))
    eventually(lambda: "kctl_group_members" in samples(url))
    eventually(lambda: samples(url)["kctl_worker_up"] == {("worker-0",): 1, ("worker-1",): 1})

    # A worker is killed: what only it could report is gone, nothing of it turns into 0, and it is shown as down.
    os.kill(fleet.status()["worker-1"]["pid"], signal.SIGKILL)

    def is_gone() -> bool:
        # It may die in the middle of a collection, which has had some of its answers then.
        left = samples(url)
        return (
            left["kctl_worker_up"]["worker-1",] == 0
            and left["kctl_worker_state"]["worker-1", "backoff"] == 1
            and ("orders", "1") not in left["kctl_consumer_position_offset"]
            and ("worker-1",) not in left.get("kctl_worker_resident_memory_bytes", {})
        )

    eventually(is_gone, what="what only it could report is gone")
    left = samples(url)
    assert ("orders", "1") not in left["kctl_consumer_lag"], "the group has committed nothing for it"
    assert ("orders", "0") in left["kctl_consumer_lag"]
    assert "worker-1 is backoff" in readiness(url)

    # The group is gone: what it had committed is gone with it, and the lag that rested on it.
    commit_as_nobody(own_broker, fleet, 3, 10)
    eventually(lambda: samples(url)["kctl_consumer_lag"].get(("orders", "3")) == 0, 20)
    with KafkaAdminClient(bootstrap_servers=own_broker.bootstrap_servers) as admin:
        admin.delete_groups([group_of(fleet)])
    eventually(lambda: ("orders", "3") not in samples(url)["kctl_consumer_lag"], 20)
    left = samples(url)
    assert ("orders", "3") not in left["kctl_consumer_committed_offset"]
    assert ("orders", "3") in left["kctl_partition_end_offset"]
    eventually(lambda: samples(url).get("kctl_group_state", {}).get(("dead",)) == 1, 20)

    # A topic is deleted: all of its series are gone.
    topics.delete_topic(own_broker.bootstrap_servers, "passing")
    eventually(lambda: 'topic="passing"' not in fetch(f"{url}/metrics"))
    assert "passing" not in json.loads(fetch(f"{url}/api/v1/lag"))["topics"]

    # The brokers are away: what they reported grows older; what is no longer known is gone; nothing is 0.
    before = samples(url)
    own_broker.stop()
    try:
        eventually(lambda: "kctl_group_members" not in samples(url))
        eventually(lambda: samples(url)["kctl_consumer_status"].get(("orders", "3", "unknown")) == 1)
        away = samples(url)
        assert "kctl_group_state" not in away
        assert away["kctl_partition_end_offset"]["orders", "3"] == before["kctl_partition_end_offset"]["orders", "3"]
        eventually(lambda: samples(url)["kctl_group_stats_age_seconds"][()] > 1.5)
        last = "kctl_collect_last_success_timestamp_seconds"
        eventually(lambda: time.time() - samples(url)[last]["offsets",] > 1.5)
        assert ("orders", "0") in away["kctl_consumer_lag"], "its worker still reports it"
    finally:
        own_broker.restart()
    eventually(lambda: "kctl_group_members" in samples(url), 40)


def group_of(fleet: Any) -> str:
    return str(fleet.config.parent.name)


def commit_as_nobody(broker: KafkaBroker, fleet: Any, partition: int, offset: int) -> None:
    """As Kafka's own tool does for a group that has no members."""
    with ClusterConnection(plain(broker.bootstrap_servers), 20) as connection:
        connection.open()
        reported = commit(connection, group_of(fleet), {(TOPIC, partition): offset})
    assert set(reported.values()) == {None}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_brokers_that_are_away_for_five_minutes_leave_offsets_with_their_age(
    master: Callable[..., Any], eventually: Eventually, own_broker: KafkaBroker
) -> None:
    fill(own_broker, (0, 1, 3))
    fleet = master(kafka={"bootstrap_servers": own_broker.bootstrap_servers})
    commit_as_nobody(own_broker, fleet, 3, 5)
    url = fleet.about["http_url"]
    eventually(lambda: samples(url).get("kctl_consumer_lag", {}).get(("orders", "3")) == 95, 20)
    eventually(lambda: "kctl_group_members" in samples(url), 20)
    reported_by_brokers = ("kctl_consumer_committed_offset", "kctl_partition_end_offset", "kctl_consumer_lag")

    own_broker.stop()
    before, away_since = samples(url), time.time()
    eventually(lambda: "kctl_group_members" not in samples(url), 30)
    sequence, age, pause = 0, 0.0, threading.Event()
    while time.time() - away_since < AWAY_SECONDS:
        pause.wait(5.0)
        began = time.monotonic()
        found, status = samples(url), json.loads(fetch(f"{url}/api/v1/status"))
        assert time.monotonic() - began < 5, "nothing freezes"
        assert status["sequence"] > sequence
        assert status["age_seconds"] < 30, "the fleet itself is polled all the time"
        sequence = status["sequence"]
        # What nobody can know now is absent, what was known is as it was, and nothing has become 0.
        assert not {"kctl_group_members", "kctl_group_state"} & found.keys()
        for name in reported_by_brokers:
            assert found[name]["orders", "3"] == before[name]["orders", "3"]
        became_zero = {
            (name, labels)
            for name, values in found.items()
            for labels, value in values.items()
            if name.startswith(("kctl_consumer", "kctl_partition", "kctl_topic", "kctl_group_lag"))
            if "growth" not in name  # of the last offsets, as long as they are judged
            if value == 0 and before.get(name, {}).get(labels, 1) != 0
        }
        assert became_zero == set()
        # And how old it is is known, by age and by time.
        seconds = time.time() - away_since
        assert found["kctl_group_stats_age_seconds"][()] > max(age, seconds - 10)
        age = found["kctl_group_stats_age_seconds"][()]
        for part in ("committed", "offsets", "group"):
            assert found["kctl_collect_last_success_timestamp_seconds"][part,] < away_since + 1
        if seconds > 70:
            assert found["kctl_consumer_status"]["orders", "3", "unknown"] == 1
            assert "no Kafka broker has answered since" in readiness(url)
    assert {row["state"] for row in fleet.status().values()} == {"running"}
    assert httpx.get(f"{url}/healthz").status_code == 200

    own_broker.restart()
    eventually(lambda: samples(url).get("kctl_group_stats_age_seconds", {}).get((), 99) < 5, 60)
    commit_as_nobody(own_broker, fleet, 3, 7)
    eventually(lambda: samples(url)["kctl_consumer_committed_offset"]["orders", "3"] == 7, 20)


def readiness(url: str) -> str:
    """What `/readyz` answers."""
    return httpx.get(f"{url}/readyz").text
