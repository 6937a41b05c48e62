"""Both hosts of a fleet show the same, correct verdict."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.conftest import eventually
from tests.expressions import rules
from tests.integration.conftest import PARTITIONS, TOPIC
from tests.integration.hosts import Fleet, fleet
from tests.prometheus import Prometheus, require
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

__all__ = ["fleet"]

WINDOW_SECONDS = 2.0
NEAR_LIMIT = "262m"
"""More than the memory of a stand-in worker that has grown by 200 MiB, but less than a ninth more."""
OF_LAG = ("KctlTimeLagOverObjective", "KctlConsumerLagGrowing")
"""Alerts about pending messages, which are no host's own."""
BOTH = ("a", "b")


@pytest.fixture(autouse=True)
def pending(broker: KafkaBroker) -> None:
    """In every partition; no worker ever commits."""
    topics.produce(broker.bootstrap_servers, TOPIC, dict.fromkeys(range(PARTITIONS), 10))


def start(fleet: Fleet, name: str, behaviour: str = "", fault: str = "", **workers: object) -> None:
    more: dict[str, dict[str, object]] = {
        "status": {"window_seconds": WINDOW_SECONDS, "hold_seconds": 0.2},
        "kafka": {"session_timeout_seconds": 6.0},
        "workers": {"count": 1, "engine": "own", "backoff_min_seconds": 0.1, "backoff_max_seconds": 0.2, **workers},
        "spark.conf": {"KCTL_TEST_JOINS": "1", "KCTL_TEST_WORKER": behaviour, "KCTL_TEST_FAULT_FILE": fault},
    }
    fleet.start(name, more=more)


def level(fleet: Fleet, name: str) -> str:
    """As this host shows it in three commands and on the page."""
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


@pytest.mark.long
@pytest.mark.shows("with two hosts an alert about a worker or a host fires only for its own host")
def test_an_alert_fires_for_its_host_and_for_no_other(fleet: Fleet, tmp_path: Path) -> None:
    require("prometheus")
    at_once = rules()
    for group in at_once["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    broken = tmp_path / "broken"
    start(fleet, "a", "grows", memory_hard=NEAR_LIMIT)
    start(fleet, "b", "boot_failure", str(broken))
    fleet.await_all(*BOTH)
    assert fleet.operate("a", "pause", all=True, host="a")["state"] == "done"
    targets = [fleet.masters[name].about["http_url"].removeprefix("https://") for name in BOTH]
    token, ca = fleet.token.read_text().strip(), fleet.folder / "cert.pem"
    with closing(Prometheus(tmp_path, targets, rules=yaml.safe_dump(at_once), token=token, ca=ca)) as prometheus:

        def fire(*expected: tuple[str, ...]) -> bool:
            """Each alert with its worker, host or topic."""
            about = ("worker", "host", "topic")
            found = [
                (each["alertname"], *(each[name] for name in about if name in each)) for each in prometheus.firing()
            ]
            return sorted(each for each in found if each[0] not in OF_LAG) == sorted(expected)

        def is_firing(alert: str) -> bool:
            return ("b/worker-0", alert) in {(each.get("worker"), each["alertname"]) for each in prometheus.firing()}

        def dies_again(alert: str) -> bool:
            [row] = fleet.masters["b"].ask("status", of_master=True, local=True).result["rows"]
            if row["state"] == "running":
                with suppress(ProcessLookupError):  # it was just killed, or given up
                    os.kill(row["pid"], signal.SIGKILL)
            return is_firing(alert)

        near_limit = "KctlWorkerMemoryNearLimit", "a/worker-0"
        stalled = ("KctlConsumerStalled", TOPIC), ("KctlFleetFailing",)
        eventually(partial(fire, near_limit, *stalled), what="b alone stalls, and the fleet is failing once")
        assert prometheus.query('kctl_consumer_status{status="stalled"}') != []
        eventually(partial(all_owned, prometheus), what="b, which stalls, owns its partitions")

        pid = fleet.pid("b")
        os.kill(pid, signal.SIGSTOP)
        eventually(partial(is_firing, "KctlWorkerDown"), what="the worker of b is down")
        os.kill(pid, signal.SIGCONT)
        eventually(partial(dies_again, "KctlWorkerRestartLoop"), what="the worker of b is restarted again and again")
        broken.touch()
        eventually(partial(dies_again, "KctlWorkerGivenUp"), what="the worker of b is given up")
        loop = "KctlWorkerRestartLoop", "b/worker-0"
        given_up = ("KctlFleetDegraded",), ("KctlWorkerDown", loop[1]), ("KctlWorkerGivenUp", loop[1]), loop
        eventually(partial(fire, near_limit, *given_up), what="b does nothing, and a has its partitions")

        fleet.kill("b")
        missing = ("KctlFleetDegraded",), ("KctlHostMissing", "b"), ("KctlMasterDown",)
        eventually(partial(fire, near_limit, loop, *missing), what="b is missed; its restarts are of the last minutes")


def all_owned(prometheus: Prometheus) -> bool:
    [unowned] = prometheus.query("max(kctl_group_unowned_partitions)")
    return bool(unowned["value"][1] == "0")


def unread(fleet: Fleet, at: str) -> bool:
    return statuses(fleet, at) == {"": {"stopped"}} and level(fleet, at) == "failing"
