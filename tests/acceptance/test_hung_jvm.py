"""The master detects a hung JVM of the engine, and a worker its own."""

from __future__ import annotations

import re

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.processes import alive


def test_a_jvm_that_hangs_is_restarted_and_nothing_is_lost_or_stored_twice(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(
        workers=1, partitions=2, kafka="max_poll_interval_seconds = 15.0", workers_more="revoke_timeout_seconds = 5.0"
    )
    fleet.start("worker-0")
    load = fleet.load(rate=500)
    eventually(lambda: fleet.workers()["worker-0"]["batches_total"] > 1, SETTLE_SECONDS, "it stores")
    driver, cause = ("engine", "unresponsive") if fleet.has_engine else ("worker-0", "exit")
    jvm, worker = fleet.jvm(), fleet.workers()["worker-0"]["pid"]

    jvm.suspend()
    eventually(lambda: restarts(fleet, driver).get(cause), SETTLE_SECONDS, "it is restarted")

    status = fleet.processes()[driver]["supervisor"]
    if fleet.has_engine:
        found = re.fullmatch(r"its agent answers, but its main thread has hung for ([0-9.]+) s", status["last_error"])
        assert found is not None, status["last_error"]
        assert float(found[1]) >= 7.5
    else:
        assert "its JVM does not answer" in status["last_error"]
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "everything is stored and committed")
    assert not alive([jvm]), "the JVM that hung is gone"
    assert not fleet.has_engine or fleet.workers()["worker-0"]["pid"] == worker, "the worker needed no restart"
    fleet.stored_once()


def restarts(fleet: Fleet, name: str) -> dict[str, int]:
    fleet.check()
    causes = fleet.processes().get(name, {}).get("supervisor", {}).get("restarts_by_cause", {})
    return {str(cause): int(count) for cause, count in causes.items()}
