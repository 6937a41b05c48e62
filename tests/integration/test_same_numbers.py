"""RPC, HTTP, `/metrics` and the page show the same numbers of one collection."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from selenium import webdriver

from tests.conftest import eventually
from tests.exporters import Samples
from tests.integration.page_site import number, rows
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

TOPIC = "orders"

Numbers = dict[tuple[str, int], tuple[Any, ...]]  # topic and partition to committed, end, lag, and the lag of its topic


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
    body = json.loads(fleet.get(f"/api/v1/lag{query}"))
    return of_rows(body["rows"], body)


def by_metrics(fleet: Any, owners: Numbers) -> Numbers:
    """Takes workers from `owners`, because metrics name none."""
    found = Samples(fleet.get("/metrics"))
    names = ("kctl_consumer_committed_offset", "kctl_partition_end_offset", "kctl_consumer_lag")
    committed, ends, lags = (found.of(name, "topic", "partition") for name in names)
    return {
        (topic, int(partition)): (
            *(each.get((topic, partition)) for each in (committed, ends, lags)),
            owners[topic, int(partition)][3],
            found.of("kctl_topic_lag", "topic").get((topic,)),
            found.of("kctl_group_lag")[()],
        )
        for topic, partition in ends
    }


@pytest.mark.shows("RPC, HTTP, `/metrics` and the page show the same number")
def test_rpc_http_metrics_and_page_show_the_same_numbers(
    master: Callable[..., Any], broker: KafkaBroker, chromium: webdriver.Chrome
) -> None:
    topics.produce(broker.bootstrap_servers, TOPIC, {0: 100, 1: 100})  # what the stand-in workers claim
    fleet = master()
    eventually(lambda: 'part="committed"' in fleet.get("/metrics"))
    expected = eventually(lambda: len(found := by_rpc(fleet)) == 4 and found, what="all four partitions")

    # Collected values follow later: the last collection may be older than the last worker.
    eventually(lambda: by_http(fleet) == expected, what="HTTP")
    assert by_http(fleet, "?live=1") == expected
    eventually(lambda: by_metrics(fleet, expected) == expected, what="metrics")
    assert [numbers[3] for numbers in expected.values()] == ["worker-0", "worker-1", None, None]
    reported = {key: tuple("-" if each is None else str(each) for each in row[:4]) for key, row in expected.items()}
    lag = str(next(iter(expected.values()))[5])

    def on_the_page() -> dict[tuple[str, int], tuple[str, ...]]:
        found = rows(chromium, "partitions")
        return {(row[0], int(row[1])): (row[7], row[8], row[3], row[9]) for row in found if len(row) > 9}

    chromium.get(fleet.about["http_url"])
    eventually(lambda: on_the_page() == reported, what="the page's table")
    eventually(lambda: number(chromium, "kafka", "lag") == lag, what="the page's lag")
    chromium.get("about:blank")

    def is_one_status() -> bool:
        # There are two if another collection came between the two questions.
        status, found = json.loads(fleet.get("/api/v1/status")), Samples(fleet.get("/metrics"))
        return bool(
            {word for (word,), value in found.of("kctl_group_status", "status").items() if value} == {status["status"]}
            and found.of("kctl_group_lag") == {(): status["lag"]}
            and found.of("kctl_storage_messages", state="pending") == {(): pending}
            and pending == status["storage"]["pending"]
        )

    pending = fleet.ask("block_size").result["pending"]
    eventually(is_one_status, what="the same status and storage")
    assert json.loads(fleet.get("/api/v1/storage"))["pending"] == pending
