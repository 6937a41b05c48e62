"""A process supervisor and real child processes: restarts, give-up, time-outs, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kctl.master.process_supervisor
from kctl.master.health import HealthRules, Heartbeat
from kctl.master.process import session_members
from kctl.master.process_supervisor import Launch, ProcessSupervisor, SupervisionPolicy
from kctl.master.restart import Cause, RestartPolicy, SupervisionState
from kctl.master.supervisor import Supervisor

pytestmark = pytest.mark.anyio

UP = "import sys; print('ready to work', flush=True); sys.stdin.read()"
STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
)
WITH_CHILD = """
import subprocess, sys
child = "import os, signal; os.setpgid(0, 0); print('child', flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", child])
sys.stdin.read()
"""
QUICK = RestartPolicy(backoff_min_seconds=0.05, backoff_max_seconds=0.2, stable_seconds=60)
SLOW_PINGS = HealthRules(ping_timeout_seconds=60)
SLOW = RestartPolicy(backoff_min_seconds=60, backoff_max_seconds=60, stable_seconds=60)


async def until(predicate: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not predicate():  # noqa: ASYNC110 - processes and their files have no event
            await asyncio.sleep(0.01)


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """How often a function of `health` was called: how often process supervisors have checked."""
    called = itertools.count(1)
    last = [0]
    function = getattr(kctl.master.process_supervisor, name)

    def counted(*arguments: object) -> object:
        last[0] = next(called)
        return function(*arguments)

    monkeypatch.setattr(kctl.master.process_supervisor, name, counted)
    return lambda: last[0]


class Supervised:
    """A supervisor of one worker; its agent answers as soon as the process lives, unless `is_mute`."""

    def __init__(
        self,
        code: str,
        log: Path,
        policy: RestartPolicy = QUICK,
        rules: HealthRules = SLOW_PINGS,
        *,
        is_mute: bool = False,
        **times: float,
    ) -> None:
        self.log = log
        self.reported: dict[str, Any] = {}
        self.is_mute = is_mute
        self.asked = 0
        command = [sys.executable, "-c", code] if code else [str(log.parent / "no such command")]
        self.supervisor = Supervisor(
            [
                Launch(
                    "worker-0",
                    command,
                    {},
                    log,
                    log.with_name("worker-0.sock"),
                    times.get("start_timeout_seconds", 10.0),
                    times.get("stop_timeout_seconds", 10.0),
                )
            ],
            {"worker": SupervisionPolicy(policy, rules, ping_interval_seconds=0.05, memory_interval_seconds=0.05)},
            self.answer,
        )

    async def answer(self, _name: str, _timeout_seconds: float) -> Heartbeat | None:
        self.asked += 1
        return None if self.is_mute or self.pid is None else Heartbeat(self.pid, **self.reported)

    @property
    def process(self) -> ProcessSupervisor:
        return self.supervisor._processes["worker-0"]

    @property
    def pid(self) -> int | None:
        return self.supervisor.status()[0].pid

    @property
    def state(self) -> str:
        return self.supervisor.status()[0].state

    def has_logged(self, word: str) -> bool:
        """A child may have written before its supervisor knows its pid."""
        return self.pid is not None and self.log.exists() and word in self.log.read_text()

    async def reaches(self, state: str) -> None:
        await until(lambda: self.state == state)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.supervisor.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_worker_is_running_once_its_agent_answers_with_its_own_pid(tmp_path: Path) -> None:
    fleet = Supervised(UP, tmp_path / "log", is_mute=True)

    async with fleet.running():
        await until(lambda: fleet.pid is not None)
        assert fleet.state == "starting"
        fleet.is_mute = False
        await fleet.reaches("running")

        assert (await fleet.supervisor.resident_bytes())["worker-0"] > 1024 * 1024


async def test_a_killed_worker_comes_back_and_the_log_has_why_and_when(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fleet = Supervised(UP, tmp_path / "log")

    async with fleet.running():
        await fleet.reaches("running")
        await until(lambda: "ready" in (tmp_path / "log").read_text())
        first = fleet.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: fleet.pid not in (first, None) and fleet.state == "running")

    assert fleet.supervisor.status()[0].restarts_by_cause == {**dict.fromkeys(Cause, 0), Cause.SIGNAL: 1}
    line = next(record.getMessage() for record in caplog.records if "action=backoff" in record.getMessage())
    assert line.startswith("action=backoff worker=worker-0: died (signal 9, SIGKILL), restart 1 in 0.")
    assert "ready to work" not in line, "a line of its log that is no error is not why a signal ended it"
    assert fleet.supervisor.status()[0].last_error == "signal 9, SIGKILL"


@pytest.mark.shows("the last error goes when a process is stable or started by request; the count of restarts stays")
async def test_the_last_error_goes_when_the_new_process_is_stable_and_the_count_of_restarts_stays(
    tmp_path: Path,
) -> None:
    fleet = Supervised(UP, tmp_path / "log", replace(QUICK, stable_seconds=0.0))

    async with fleet.running():
        await until(lambda: fleet.state == "running")
        assert fleet.pid is not None
        os.kill(fleet.pid, signal.SIGKILL)
        await until(lambda: fleet.supervisor.status()[0].restarts_by_cause["signal"] == 1)
        await until(lambda: fleet.state == "running" and fleet.supervisor.status()[0].last_error is None)

    assert fleet.supervisor.status()[0].restarts_by_cause["signal"] == 1


async def test_the_last_error_goes_at_once_when_a_process_was_started_by_request(tmp_path: Path) -> None:
    corrected = tmp_path / "corrected"
    code = f"""import os, sys
if not os.path.exists({str(corrected)!r}):
    print("no such handler")
    sys.exit(78)
sys.stdin.read()"""
    fleet = Supervised(code, tmp_path / "log")

    async with fleet.running():
        await fleet.reaches("fatal")
        assert fleet.supervisor.status()[0].last_error == "no such handler"
        corrected.touch()
        fleet.supervisor.process("worker-0").start()

        await until(lambda: fleet.state == "running" and fleet.supervisor.status()[0].last_error is None)


async def test_what_a_dead_worker_had_started_is_gone_before_it_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fleet = Supervised(WITH_CHILD, log, SLOW)

    async with fleet.running():
        await until(lambda: fleet.has_logged("child"))
        pid = fleet.pid
        assert pid is not None
        assert len(session_members(pid)) == 2
        os.kill(pid, signal.SIGKILL)
        await fleet.reaches("backoff")

        assert session_members(pid) == []


async def test_a_boot_failure_is_fatal_at_once_and_shows_its_last_line(tmp_path: Path) -> None:
    fleet = Supervised("import sys; print('no such transform'); sys.exit(78)", tmp_path / "log")

    async with fleet.running():
        await fleet.reaches("fatal")

        status = fleet.supervisor.status()[0]
        assert status.last_error == "no such transform"
        assert sum(status.restarts_by_cause.values()) == 0
        await fleet.supervisor.stop()
        assert fleet.state == "stopped"


async def test_a_command_that_cannot_be_executed_counts_as_a_failure(tmp_path: Path) -> None:
    fleet = Supervised("", tmp_path / "log", SLOW)

    async with fleet.running():
        await fleet.reaches("backoff")

        assert "no such command" in (fleet.supervisor.status()[0].last_error or "")


async def test_a_worker_whose_agent_stays_mute_is_replaced_and_counted(tmp_path: Path) -> None:
    fleet = Supervised(UP, tmp_path / "log", is_mute=True, start_timeout_seconds=0.2)

    async with fleet.running():
        await until(lambda: fleet.supervisor.status()[0].restarts_by_cause["unresponsive"] == 1)

        assert fleet.supervisor.status()[0].last_error == "its agent did not answer within 0.2 s"
        fleet.is_mute = False


async def test_a_stop_asks_first_and_kills_at_the_deadline(tmp_path: Path) -> None:
    fleet = Supervised(STUBBORN, tmp_path / "log", stop_timeout_seconds=0.2)

    async with fleet.running():
        await until(lambda: fleet.has_logged("up"))
        pid = fleet.pid
        assert pid is not None
        await fleet.supervisor.stop()

        assert (fleet.state, fleet.pid) == ("stopped", None)
        assert session_members(pid) == []


async def test_a_worker_can_be_stopped_while_it_waits_for_its_next_try(tmp_path: Path) -> None:
    fleet = Supervised("import sys; sys.exit(1)", tmp_path / "log", SLOW)

    async with fleet.running():
        await fleet.reaches("backoff")
        await fleet.supervisor.stop()

        assert fleet.state == "stopped"


async def test_the_end_of_the_supervisor_is_the_end_of_its_workers(tmp_path: Path) -> None:
    fleet = Supervised(STUBBORN, tmp_path / "log")

    async with fleet.running():
        await until(lambda: fleet.has_logged("up"))
        pid = fleet.pid
    assert pid is not None

    assert session_members(pid) == []
    await fleet.supervisor.stop()


async def test_a_failure_inside_a_process_supervisor_ends_the_supervisor_and_the_worker(tmp_path: Path) -> None:
    fleet = Supervised(UP, tmp_path / "log", is_mute=True)
    task = asyncio.create_task(fleet.supervisor.run())
    await until(lambda: fleet.pid is not None)
    pid = fleet.pid
    assert pid is not None

    async def broken(_name: str, _timeout_seconds: float) -> Heartbeat | None:
        raise ZeroDivisionError

    fleet.process._probe = broken
    with pytest.raises(ExceptionGroup):
        await task

    assert session_members(pid) == []


MUTE = """
import faulthandler, sys
faulthandler.enable()
print('up', flush=True)
def in_the_depths():
    sys.stdin.read()
in_the_depths()
"""
GROWING = (
    "import sys; print('up', flush=True); held = bytearray(64 << 20); print('grown', flush=True); sys.stdin.read()"
)


async def test_a_worker_that_hangs_leaves_its_stacks_in_its_log_and_is_replaced(tmp_path: Path) -> None:
    fleet = Supervised(MUTE, tmp_path / "log", rules=HealthRules(ping_timeout_seconds=0.3))

    async with fleet.running():
        await fleet.reaches("running")
        await until(lambda: fleet.has_logged("up"))
        first = fleet.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        fleet.is_mute = True
        await fleet.reaches("backoff")
        fleet.is_mute = False
        await until(lambda: fleet.pid not in (first, None) and fleet.state == "running")

        status = fleet.supervisor.status()[0]
        assert status.restarts_by_cause[Cause.UNRESPONSIVE] == 1
        assert (status.last_error or "").startswith("its agent has not answered for 0.")
        assert "in in_the_depths" in fleet.log.read_text()
        assert session_members(first) == []


async def test_a_worker_that_has_answered_somebody_is_not_asked_again_and_is_not_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = calls(monkeypatch, "judge")
    fleet = Supervised(UP, tmp_path / "log", rules=HealthRules(ping_timeout_seconds=0.5))
    async with fleet.running():
        await fleet.reaches("running")
        fleet.is_mute = True
        fleet.supervisor.on_heartbeats(
            {"worker-0": Heartbeat(fleet.pid or 0), "guest": Heartbeat(1)}, time.monotonic() + 60
        )
        asked, before = fleet.asked, judged()

        await until(lambda: judged() >= before + 50)

        assert fleet.asked == asked, "in more than a second, twice the time after which silence is unhealthy"
        assert fleet.state == "running"
        health = fleet.process.health
        assert health is not None
        fleet.process._health = replace(health, heartbeat_at=time.monotonic())
        fleet.supervisor.on_heartbeats(
            {"worker-0": Heartbeat(1)}, time.monotonic() + 60
        )  # another process of that name
        await until(lambda: fleet.process.status().restarts_by_cause["unresponsive"] == 1)


async def test_a_worker_above_its_soft_limit_is_asked_to_leave_and_counted(tmp_path: Path) -> None:
    fleet = Supervised(GROWING, tmp_path / "log")

    async with fleet.running():
        await fleet.reaches("running")
        await until(lambda: fleet.has_logged("grown"))
        health = fleet.process.health
        assert health is not None
        fleet.process._health = replace(health, boot_bytes=1 << 20)
        rules = HealthRules(60, memory_soft_bytes=40 << 20, memory_breaches=2)
        fleet.supervisor.reconfigure([], {"worker": SupervisionPolicy(QUICK, rules, 0.05, 0.05)})
        assert fleet.supervisor.memory_limits() == {"worker-0": 40 << 20}
        await until(lambda: fleet.supervisor.status()[0].restarts_by_cause[Cause.MEMORY] >= 1)

        assert "was above memory_soft, 40 MiB, 2 times in a row" in (fleet.supervisor.status()[0].last_error or "")


async def test_a_memory_limit_below_the_size_after_the_start_is_refused_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = calls(monkeypatch, "on_memory_sample")
    fleet = Supervised(
        UP, tmp_path / "log", rules=HealthRules(60, memory_soft_bytes=1 << 20, memory_hard_bytes=2 << 20)
    )

    async with fleet.running():
        await until(lambda: fleet.supervisor.status()[0].warning is not None)
        before = measured()
        await until(lambda: measured() >= before + 5)

        status = fleet.supervisor.status()[0]
        assert (status.state, sum(status.restarts_by_cause.values())) == ("running", 0)
        assert (status.warning or "").startswith("workers.memory_soft (1 MiB) is not applied: after its start alone it")
    assert len([r for r in caplog.records if "action=limit_refused" in r.getMessage()]) == 1


async def test_a_worker_that_makes_no_progress_is_replaced_and_counted(tmp_path: Path) -> None:
    fleet = Supervised(UP, tmp_path / "log", rules=HealthRules(60, stalled_seconds=0.2))
    fleet.reported = {"state": "running", "batches_total": 7, "lag": 100}

    async with fleet.running():
        await until(lambda: fleet.supervisor.status()[0].restarts_by_cause[Cause.STALLED] >= 1)

        assert "has made no progress for " in (fleet.supervisor.status()[0].last_error or "")


@pytest.mark.shows("an engine in which a new worker gets nowhere is replaced")
@pytest.mark.parametrize(
    ("batches", "others_read", "is_at_fault"), [(0, False, True), (7, False, False), (0, True, False)]
)
async def test_an_engine_in_which_a_new_worker_gets_nowhere_is_replaced_unless_another_finishes_batches_in_it(
    tmp_path: Path, batches: int, others_read: bool, is_at_fault: bool
) -> None:
    fleet = Supervised(UP, tmp_path / "log", rules=HealthRules(60, stalled_seconds=0.2))
    fleet.supervisor._policies = {**fleet.supervisor._policies, "engine": SupervisionPolicy(QUICK, SLOW_PINGS)}
    engine = replace(fleet.process.launch, name="engine", kind="engine", log_path=tmp_path / "log-engine")
    other = replace(fleet.process.launch, name="worker-1", log_path=tmp_path / "log-1")
    stored = itertools.count(1)

    async def answer(name: str, _timeout_seconds: float) -> Heartbeat | None:
        pid = fleet.supervisor.process(name).pid
        if pid is None or name == "engine":
            return None if pid is None else Heartbeat(pid)
        return Heartbeat(pid, **(fleet.reported if name == "worker-0" else {"batches_total": next(stored)}))

    def restarts(name: str) -> int:
        [status] = [each for each in fleet.supervisor.status() if each.name == name]
        return status.restarts_by_cause[Cause.STALLED]

    fleet.supervisor._probe = fleet.process._probe = answer
    async with fleet.running():
        await fleet.reaches("running")
        process = fleet.supervisor.add(engine)
        await until(lambda: process.state is SupervisionState.RUNNING)
        if others_read:
            reading = fleet.supervisor.add(other)
            await until(lambda: reading.state is SupervisionState.RUNNING)
        fleet.reported = {"state": "running", "batches_total": batches, "lag": 100}
        await until(lambda: restarts("engine" if is_at_fault else "worker-0") >= 1)

        assert is_at_fault or restarts("engine") == 0


async def test_waiting_for_a_worker_that_is_given_up_returns_its_name(tmp_path: Path) -> None:
    fleet = Supervised("import sys; sys.exit(78)", tmp_path / "log")

    async with fleet.running(), asyncio.timeout(10):
        assert await fleet.supervisor.until_fatal() == "worker-0"


async def test_a_process_may_be_added_and_removed_while_the_others_run(tmp_path: Path) -> None:
    fleet = Supervised(UP, tmp_path / "log")

    async with fleet.running():
        await fleet.reaches("running")
        other = replace(fleet.process.launch, name="worker-1", log_path=tmp_path / "log-1")
        fleet.supervisor.add(other)
        await until(lambda: fleet.supervisor.status()[1].pid is not None)
        pid = fleet.supervisor.status()[1].pid
        assert pid is not None

        await fleet.supervisor.remove("worker-1")

        assert fleet.supervisor.names == ["worker-0"]
        assert session_members(pid) == []
        assert fleet.state == "running"


@pytest.mark.shows("100 forced restarts leave descriptors, threads and files as they were")
async def test_a_hundred_forced_restarts_leave_descriptors_threads_and_files_as_they_were(tmp_path: Path) -> None:
    fleet = Supervised("import sys; sys.stdin.read()", tmp_path / "log")

    def held() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(os.listdir(tmp_path))

    def is_up_after(incarnation: int) -> bool:
        return fleet.process.incarnation > incarnation and fleet.state == "running"

    async with fleet.running():
        await fleet.reaches("running")
        before: tuple[int, int, int] | None = None
        for number in range(100):
            first = fleet.process.incarnation
            fleet.process.restart()
            await fleet.process.until(functools.partial(is_up_after, first))
            if number == 9:
                before = held()

        assert fleet.supervisor.status()[0].restarts_by_cause[Cause.REQUESTED] == 100
        assert before is not None
        descriptors, tasks, files = before
        await until(lambda: held()[0] <= descriptors)  # the pipe of the last one may just be closing
        assert held()[1] <= tasks + 4, "asyncio's pool grows up to its bound"
        assert held()[2] == files
