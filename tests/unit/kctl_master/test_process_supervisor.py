from __future__ import annotations

import asyncio
import functools
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kctl.master.process_supervisor
from kctl.master.health import HealthRules
from kctl.master.process import session_members
from kctl.master.process_supervisor import SupervisionPolicy
from kctl.master.restart import Cause, RestartPolicy, SupervisionState
from kctl_agent.replies.workers import PingReply
from tests.processes import until
from tests.unit.kctl_master.conftest import QUICK, SLOW_PINGS, UP, Fleet

SLOW = RestartPolicy(backoff_min_seconds=60, backoff_max_seconds=60, stable_seconds=60)


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    called = itertools.count(1)
    last = [0]
    function = getattr(kctl.master.process_supervisor, name)

    def counted(*arguments: object) -> object:
        last[0] = next(called)
        return function(*arguments)

    monkeypatch.setattr(kctl.master.process_supervisor, name, counted)
    return lambda: last[0]


async def test_the_last_error_goes_at_once_when_a_process_was_started_by_request(tmp_path: Path) -> None:
    corrected = tmp_path / "corrected"
    code = f"""import os, sys
if not os.path.exists({str(corrected)!r}):
    print("no such handler")
    sys.exit(78)
sys.stdin.read()"""
    fleet = Fleet(tmp_path, code, "", policy=SLOW)

    async with fleet.running("fatal", "backoff"):
        assert "no such command" in (fleet[1].last_error or ""), "what cannot be executed counts as a failure"
        assert fleet[0].last_error == "no such handler"
        corrected.touch()
        fleet.supervisor.process("worker-0").start()

        await until(lambda: fleet[0].state == "running" and fleet[0].last_error is None)


async def test_a_process_that_does_not_leave_for_a_restart_says_so_until_the_next_one_is_stable(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + UP
    fleet = Fleet(tmp_path, code, policy=replace(QUICK, stable_seconds=2.0), stop_timeout_seconds=0.2)

    async with fleet.running():
        await until(lambda: fleet[0].state == "running" and "ready" in (tmp_path / "worker-0.log").read_text())
        fleet.process.restart()
        await until(lambda: fleet[0].state == "running" and fleet.process.incarnation == 2)

        assert fleet[0].last_error == "it did not leave within 0.2 s, and was killed"
        await until(lambda: fleet[0].last_error is None)
        assert fleet[0].since_seconds >= 2.0


async def test_a_failure_inside_a_process_supervisor_ends_the_supervisor_and_the_worker(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, UP)
    task = asyncio.create_task(fleet.supervisor.run())
    await until(lambda: fleet[0].pid is not None)
    pid = fleet[0].pid
    assert pid is not None

    async def broken(_name: str, _timeout_seconds: float) -> PingReply | None:
        raise ZeroDivisionError

    fleet.process._probe = broken
    with pytest.raises(ExceptionGroup):
        await task

    assert session_members(pid) == []


async def test_an_answer_to_anyone_is_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = calls(monkeypatch, "judge")
    fleet = Fleet(tmp_path, UP, rules=HealthRules(ping_timeout_seconds=0.5))
    async with fleet.running():
        fleet.silent.add("worker-0")
        fleet.supervisor.on_heartbeats(
            {"worker-0": PingReply(fleet[0].pid or 0), "guest": PingReply(1)}, time.monotonic() + 60
        )
        asked, before = fleet.asked, judged()

        await until(lambda: judged() >= before + 50)

        assert fleet.asked == asked, "in more than a second, twice the time after which silence is unhealthy"
        assert fleet[0].state == "running"
        health = fleet.process.health
        assert health is not None
        fleet.process.health = replace(health, heartbeat_at=time.monotonic())
        fleet.supervisor.on_heartbeats(
            {"worker-0": PingReply(1)}, time.monotonic() + 60
        )  # another process with that name
        await until(lambda: fleet[0].restarts_by_cause["unresponsive"] == 1 and fleet[0].pid is not None)


@pytest.mark.parametrize(
    ("batches", "others_read", "is_at_fault"), [(0, False, True), (7, False, False), (0, True, False)]
)
async def test_a_stuck_engine_is_replaced(tmp_path: Path, batches: int, others_read: bool, is_at_fault: bool) -> None:
    fleet = Fleet(tmp_path, UP, rules=HealthRules(60, stalled_seconds=0.2))
    fleet.supervisor._policies = {**fleet.supervisor._policies, "engine": SupervisionPolicy(QUICK, SLOW_PINGS)}
    engine = replace(fleet.process.launch, name="engine", kind="engine", log_path=tmp_path / "engine.log")
    other = replace(fleet.process.launch, name="worker-1", log_path=tmp_path / "worker-1.log")
    stored = itertools.count(1)

    async def answer(name: str, _timeout_seconds: float) -> PingReply | None:
        pid = fleet.supervisor.process(name).pid
        if pid is None or name == "engine":
            return None if pid is None else PingReply(pid)
        return PingReply(pid, **(fleet.reported if name == "worker-0" else {"batches_total": next(stored)}))

    def restarts(name: str) -> int:
        [status] = [each for each in fleet.supervisor.status() if each.name == name]
        return status.restarts_by_cause[Cause.STALLED]

    fleet.supervisor._probe = fleet.process._probe = answer
    async with fleet.running():
        process = fleet.supervisor.add(engine)
        await until(lambda: process.state is SupervisionState.RUNNING)
        if others_read:
            reading = fleet.supervisor.add(other)
            await until(lambda: reading.health is not None and reading.health.batch_at > process.since)
        fleet.reported = {"state": "running", "batches_total": batches, "lag": 100}
        await until(lambda: restarts("engine" if is_at_fault else "worker-0") >= 1)

        assert is_at_fault or restarts("engine") == 0


@pytest.mark.shows("100 forced restarts do not raise descriptors, threads or files")
async def test_a_hundred_forced_restarts_leave_descriptors_threads_and_files_as_they_were(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "import sys; sys.stdin.read()")

    def held() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(os.listdir(tmp_path))

    def is_up_after(incarnation: int) -> bool:
        return fleet.process.incarnation > incarnation and fleet[0].state == "running"

    async with fleet.running():
        before: tuple[int, int, int] | None = None
        for number in range(100):
            first = fleet.process.incarnation
            fleet.process.restart()
            await fleet.process.until(functools.partial(is_up_after, first))
            if number == 9:
                before = held()

        assert fleet[0].restarts_by_cause[Cause.REQUESTED] == 100
        assert before is not None
        descriptors, tasks, files = before
        await until(lambda: held()[0] <= descriptors)  # the pipe of the last one may just be closing
        assert held()[1] <= tasks + 4, "asyncio's pool grows up to its bound"
        assert held()[2] == files
