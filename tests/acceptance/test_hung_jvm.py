"""A JVM that hangs: the worker's main thread waits for it, its agent answers on, and the master finds it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Eventually, Fleet

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_a_worker_whose_jvm_hangs_is_restarted_and_nothing_is_lost_or_stored_twice(
    make_fleet: Callable[..., Fleet], eventually: Eventually
) -> None:
    fleet = make_fleet(
        workers=1, partitions=2, kafka="max_poll_interval_seconds = 15.0", workers_more="revoke_timeout_seconds = 5.0"
    )
    fleet.start()
    eventually(lambda: fleet.is_running("worker-0"), START_SECONDS, "the worker runs")
    load = fleet.load(rate=500)
    eventually(lambda: fleet.workers()["worker-0"]["batches_total"] > 1, SETTLE_SECONDS, "it stores")
    pid = fleet.workers()["worker-0"]["pid"]
    [jvm] = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]

    os.kill(jvm.pid, signal.SIGSTOP)
    eventually(lambda: restarts(fleet).get("unresponsive"), SETTLE_SECONDS, "it is restarted")

    status = fleet.workers()["worker-0"]["supervisor"]
    assert status["last_error"].startswith("its agent answers, but its main thread has hung for 1")
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "everything is stored and committed")
    assert not jvm.is_running(), "the JVM that hung is gone"
    found = fleet.audit()
    assert (found.lost, found.duplicated, found.stored) == (0, 0, fleet.sent.total())


def restarts(fleet: Fleet) -> dict[str, int]:
    fleet.check()
    causes = fleet.workers().get("worker-0", {}).get("supervisor", {}).get("restarts_by_cause", {})
    return {str(cause): int(count) for cause, count in causes.items()}
