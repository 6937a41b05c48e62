"""Both hosts of a fleet show the same, correct verdict."""

import json
from functools import partial

import pytest

from tests.conftest import eventually
from tests.integration.conftest import PARTITIONS, TOPIC
from tests.integration.hosts import Fleet, fleet
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

__all__ = ["fleet"]

WINDOW_SECONDS = 2.0
BOTH = ("a", "b")


@pytest.fixture(autouse=True)
def pending(broker: KafkaBroker) -> None:
    topics.produce(broker.bootstrap_servers, TOPIC, dict.fromkeys(range(PARTITIONS), 10))


def start(fleet: Fleet, name: str) -> None:
    more: dict[str, dict[str, object]] = {
        "status": {"window_seconds": WINDOW_SECONDS, "hold_seconds": 0.2},
        "kafka": {"session_timeout_seconds": 6.0},
        "workers": {"count": 1, "engine": "own", "backoff_min_seconds": 0.1, "backoff_max_seconds": 0.2},
        "spark": {"conf": {"KCTL_TEST_JOINS": "1"}},
    }
    fleet.start(name, more=more)


def level(fleet: Fleet, name: str) -> str:
    verdicts = [
        fleet.masters[name].ask("status", of_master=True).result["verdict"],
        json.loads(bytes(fleet.masters[name].ask("workers").verdict)),
        fleet.get(name, "status")["verdict"],
        fleet.get(name, "lag")["verdict"],
    ]
    return " and ".join(sorted({each["level"] for each in verdicts}))


def reason(fleet: Fleet, name: str) -> str:
    return str(fleet.get(name, "status")["verdict"]["reason"])


def statuses(fleet: Fleet, at: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in fleet.get(at, "lag")["rows"]:
        found.setdefault(row["host"] or "", set()).add(row["status"])
    return found


@pytest.mark.shows("a host judges the partitions of its own workers; every host shows the same verdict")
@pytest.mark.shows("partitions without a reader are reported once, and make no host unready")
def test_trouble_belongs_to_one_host_and_an_unread_partition_to_all(fleet: Fleet) -> None:
    for name in BOTH:
        start(fleet, name)
    fleet.await_all(*BOTH)
    assert fleet.operate("a", "pause", all=True, host="a")["state"] == "done"

    stalled = "b: 2 of 4 partitions stalled"
    for name in BOTH:
        eventually(
            lambda at=name: reason(fleet, at).startswith(stalled), what=f"{name} does not say what is wrong at b"
        )
        assert level(fleet, name) == "failing"
        assert statuses(fleet, name) == {"a": {"paused"}, "b": {"stalled"}}
        group = fleet.get(name, "status")
        assert (group["status"], group["partitions"]["paused"], group["partitions"]["stalled"]) == ("stalled", 2, 2)
        top = fleet.kctl(name, "rpc", "workers")
        assert f"the fleet is failing: {stalled}" in top.stderr
    assert fleet.page("a", "readyz").status_code == 200
    assert fleet.page("b", "readyz").status_code == 503
    assert fleet.get("a", "status?local=1")["verdict"]["level"] == "ok"

    for name in BOTH:
        assert fleet.operate(name, "stop", name="worker-0")["state"] == "done"
    for name in BOTH:
        eventually(partial(unread, fleet, name), what=f"{name} does not say that nobody reads")
        verdict = fleet.get(name, "status")["verdict"]
        assert verdict["reason"].startswith("4 of 4 partitions stopped"), verdict
        assert verdict["also"] == []
        assert fleet.page(name, "readyz").status_code == 200
        assert "kctl_group_unowned_partitions" in fleet.page(name, "metrics").text


def unread(fleet: Fleet, at: str) -> bool:
    return statuses(fleet, at) == {"": {"stopped"}} and level(fleet, at) == "failing"
