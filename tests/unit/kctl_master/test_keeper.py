"""A keeper and real child processes: restarts, give-up, time-outs, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
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

import kctl.master.keeper
from kctl.master.health import Heartbeat, Rules
from kctl.master.keeper import Care, Keeper, Launch
from kctl.master.process import session_members
from kctl.master.restart import Cause, Policy
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
QUICK = Policy(backoff_min_seconds=0.05, backoff_max_seconds=0.2, stable_seconds=60, max_failures=3)
PATIENT = Rules(ping_timeout_seconds=60)
SLOW = Policy(backoff_min_seconds=60, backoff_max_seconds=60, stable_seconds=60, max_failures=3)


async def until(predicate: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not predicate():  # noqa: ASYNC110 - processes and their files have no event
            await asyncio.sleep(0.01)


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """How often keepers have called a function of `health`: how often they have looked."""
    called = itertools.count(1)
    last = [0]
    function = getattr(kctl.master.keeper, name)

    def counted(*arguments: object) -> object:
        last[0] = next(called)
        return function(*arguments)

    monkeypatch.setattr(kctl.master.keeper, name, counted)
    return lambda: last[0]


class Kept:
    """A supervisor of one worker; its agent answers as soon as the process lives, unless `is_mute`."""

    def __init__(
        self,
        code: str,
        log: Path,
        policy: Policy = QUICK,
        rules: Rules = PATIENT,
        *,
        is_mute: bool = False,
        **times: float,
    ) -> None:
        self.log = log
        self.says_of_itself: dict[str, Any] = {}
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
            Care(policy, rules, ping_interval_seconds=0.05, memory_interval_seconds=0.05),
            self.answer,
        )

    async def answer(self, _name: str, _timeout_seconds: float) -> Heartbeat | None:
        self.asked += 1
        return None if self.is_mute or self.pid is None else Heartbeat(self.pid, **self.says_of_itself)

    @property
    def keeper(self) -> Keeper:
        return self.supervisor._keepers["worker-0"]

    @property
    def pid(self) -> int | None:
        return self.supervisor.status()[0].pid

    @property
    def state(self) -> str:
        return self.supervisor.status()[0].state

    def says(self, word: str) -> bool:
        """A child may have written before its keeper knows its pid."""
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
    kept = Kept(UP, tmp_path / "log", is_mute=True)

    async with kept.running():
        await until(lambda: kept.pid is not None)
        assert kept.state == "starting"
        kept.is_mute = False
        await kept.reaches("running")

        assert (await kept.supervisor.resident_bytes())["worker-0"] > 1024 * 1024


async def test_a_killed_worker_comes_back_and_the_log_says_why_and_when(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kept = Kept(UP, tmp_path / "log")

    async with kept.running():
        await kept.reaches("running")
        await until(lambda: "ready" in (tmp_path / "log").read_text())
        first = kept.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: kept.pid not in (first, None) and kept.state == "running")

    assert kept.supervisor.status()[0].restarts == {**dict.fromkeys(Cause, 0), Cause.SIGNAL: 1}
    line = next(record.getMessage() for record in caplog.records if "action=backoff" in record.getMessage())
    assert line.startswith("action=backoff worker=worker-0: died (signal 9, SIGKILL), restart 1 in 0.")
    assert "ready to work" not in line, "a line of its log that is no error is not why a signal ended it"
    assert kept.supervisor.status()[0].last_error == "signal 9, SIGKILL"


async def test_the_last_error_goes_when_the_new_process_is_stable_and_the_count_of_restarts_stays(
    tmp_path: Path,
) -> None:
    kept = Kept(UP, tmp_path / "log", replace(QUICK, stable_seconds=0.0))

    async with kept.running():
        await until(lambda: kept.state == "running")
        assert kept.pid is not None
        os.kill(kept.pid, signal.SIGKILL)
        await until(lambda: kept.supervisor.status()[0].restarts["signal"] == 1)
        await until(lambda: kept.state == "running" and kept.supervisor.status()[0].last_error is None)

    assert kept.supervisor.status()[0].restarts["signal"] == 1


async def test_the_last_error_goes_at_once_when_a_process_was_started_by_request(tmp_path: Path) -> None:
    corrected = tmp_path / "corrected"
    code = f"import os, sys; os.path.exists({str(corrected)!r}) or sys.exit('no such handler') ; sys.stdin.read()"
    kept = Kept(code, tmp_path / "log", replace(QUICK, max_failures=1))

    async with kept.running():
        await kept.reaches("fatal")
        assert kept.supervisor.status()[0].last_error == "no such handler"
        corrected.touch()
        kept.supervisor.keeper("worker-0").start()

        await until(lambda: kept.state == "running" and kept.supervisor.status()[0].last_error is None)


async def test_what_a_dead_worker_had_started_is_gone_before_it_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    kept = Kept(WITH_CHILD, log, SLOW)

    async with kept.running():
        await until(lambda: kept.says("child"))
        pid = kept.pid
        assert pid is not None
        assert len(session_members(pid)) == 2
        os.kill(pid, signal.SIGKILL)
        await kept.reaches("backoff")

        assert session_members(pid) == []


async def test_a_boot_failure_is_fatal_at_once_and_tells_its_last_line(tmp_path: Path) -> None:
    kept = Kept("import sys; print('no such transform'); sys.exit(78)", tmp_path / "log")

    async with kept.running():
        await kept.reaches("fatal")

        status = kept.supervisor.status()[0]
        assert status.last_error == "no such transform"
        assert sum(status.restarts.values()) == 0
        await kept.supervisor.stop()
        assert kept.state == "stopped"


async def test_a_worker_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    kept = Kept("import sys; sys.exit(1)", tmp_path / "log")

    async with kept.running():
        await kept.reaches("fatal")

        assert kept.supervisor.status()[0].restarts["exit"] == QUICK.max_failures - 1


async def test_a_command_that_cannot_be_executed_counts_as_a_failure(tmp_path: Path) -> None:
    kept = Kept("", tmp_path / "log", SLOW)

    async with kept.running():
        await kept.reaches("backoff")

        assert "no such command" in (kept.supervisor.status()[0].last_error or "")


async def test_a_worker_whose_agent_stays_mute_is_replaced_and_counted(tmp_path: Path) -> None:
    kept = Kept(UP, tmp_path / "log", is_mute=True, start_timeout_seconds=0.2)

    async with kept.running():
        await until(lambda: kept.supervisor.status()[0].restarts["unresponsive"] == 1)

        assert kept.supervisor.status()[0].last_error == "its agent did not answer within 0.2 s"
        kept.is_mute = False


async def test_a_stop_asks_first_and_kills_at_the_deadline(tmp_path: Path) -> None:
    kept = Kept(STUBBORN, tmp_path / "log", stop_timeout_seconds=0.2)

    async with kept.running():
        await until(lambda: kept.says("up"))
        pid = kept.pid
        assert pid is not None
        await kept.supervisor.stop()

        assert (kept.state, kept.pid) == ("stopped", None)
        assert session_members(pid) == []


async def test_a_worker_can_be_stopped_while_it_waits_for_its_next_try(tmp_path: Path) -> None:
    kept = Kept("import sys; sys.exit(1)", tmp_path / "log", SLOW)

    async with kept.running():
        await kept.reaches("backoff")
        await kept.supervisor.stop()

        assert kept.state == "stopped"


async def test_the_end_of_the_supervisor_is_the_end_of_its_workers(tmp_path: Path) -> None:
    kept = Kept(STUBBORN, tmp_path / "log")

    async with kept.running():
        await until(lambda: kept.says("up"))
        pid = kept.pid
    assert pid is not None

    assert session_members(pid) == []
    await kept.supervisor.stop()


async def test_a_failure_inside_a_keeper_ends_the_supervisor_and_the_worker(tmp_path: Path) -> None:
    kept = Kept(UP, tmp_path / "log", is_mute=True)
    task = asyncio.create_task(kept.supervisor.run())
    await until(lambda: kept.pid is not None)
    pid = kept.pid
    assert pid is not None

    async def broken(_name: str, _timeout_seconds: float) -> Heartbeat | None:
        raise ZeroDivisionError

    kept.keeper._probe = broken
    with pytest.raises(ExceptionGroup):
        await task

    assert session_members(pid) == []


ILL = """
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
    kept = Kept(ILL, tmp_path / "log", rules=Rules(ping_timeout_seconds=0.3))

    async with kept.running():
        await kept.reaches("running")
        await until(lambda: kept.says("up"))
        first = kept.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        kept.is_mute = True
        await kept.reaches("backoff")
        kept.is_mute = False
        await until(lambda: kept.pid not in (first, None) and kept.state == "running")

        status = kept.supervisor.status()[0]
        assert status.restarts[Cause.UNRESPONSIVE] == 1
        assert (status.last_error or "").startswith("its agent has not answered for 0.")
        assert "in in_the_depths" in kept.log.read_text()
        assert session_members(first) == []


async def test_a_worker_that_has_answered_somebody_is_not_asked_again_and_is_not_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = calls(monkeypatch, "judge")
    kept = Kept(UP, tmp_path / "log", rules=Rules(ping_timeout_seconds=0.5))
    async with kept.running():
        await kept.reaches("running")
        kept.is_mute = True
        kept.supervisor.heard({"worker-0": Heartbeat(kept.pid or 0), "guest": Heartbeat(1)}, time.monotonic() + 60)
        asked, before = kept.asked, judged()

        await until(lambda: judged() >= before + 50)

        assert kept.asked == asked, "in more than a second, twice the time after which silence is an illness"
        assert kept.state == "running"
        health = kept.keeper.health
        assert health is not None
        kept.keeper._health = replace(health, heard_at=time.monotonic())
        kept.supervisor.heard({"worker-0": Heartbeat(1)}, time.monotonic() + 60)  # another process of that name
        await until(lambda: kept.keeper.status().restarts["unresponsive"] == 1)


async def test_a_worker_above_its_soft_limit_is_asked_to_leave_and_counted(tmp_path: Path) -> None:
    kept = Kept(GROWING, tmp_path / "log")

    async with kept.running():
        await kept.reaches("running")
        await until(lambda: kept.says("grown"))
        health = kept.keeper.health
        assert health is not None
        kept.keeper._health = replace(health, boot_bytes=1 << 20)
        rules = Rules(60, memory_soft_bytes=40 << 20, memory_breaches=2)
        kept.supervisor.reconfigure([], Care(QUICK, rules, 0.05, 0.05))
        await until(lambda: kept.supervisor.status()[0].restarts[Cause.MEMORY] >= 1)

        assert "was above memory_soft, 40 MiB, 2 times in a row" in (kept.supervisor.status()[0].last_error or "")


async def test_a_memory_limit_below_the_size_after_the_start_is_refused_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = calls(monkeypatch, "measured")
    kept = Kept(UP, tmp_path / "log", rules=Rules(60, memory_soft_bytes=1 << 20, memory_hard_bytes=2 << 20))

    async with kept.running():
        await until(lambda: kept.supervisor.status()[0].warning is not None)
        before = measured()
        await until(lambda: measured() >= before + 5)

        status = kept.supervisor.status()[0]
        assert (status.state, sum(status.restarts.values())) == ("running", 0)
        assert (status.warning or "").startswith("workers.memory_soft (1 MiB) is not applied: after its start alone it")
    assert len([r for r in caplog.records if "action=limit_refused" in r.getMessage()]) == 1


async def test_a_worker_that_makes_no_progress_is_replaced_and_counted(tmp_path: Path) -> None:
    kept = Kept(UP, tmp_path / "log", rules=Rules(60, stalled_seconds=0.2))
    kept.says_of_itself = {"state": "running", "batches_total": 7, "lag": 100}

    async with kept.running():
        await until(lambda: kept.supervisor.status()[0].restarts[Cause.STALLED] >= 1)

        assert "has made no progress for " in (kept.supervisor.status()[0].last_error or "")


async def test_who_waits_for_a_given_up_worker_is_told_its_name(tmp_path: Path) -> None:
    kept = Kept("import sys; sys.exit(78)", tmp_path / "log")

    async with kept.running(), asyncio.timeout(10):
        assert await kept.supervisor.until_fatal() == "worker-0"


async def test_a_process_may_be_added_and_removed_while_the_others_run(tmp_path: Path) -> None:
    kept = Kept(UP, tmp_path / "log")

    async with kept.running():
        await kept.reaches("running")
        other = replace(kept.keeper.launch, name="worker-1", log_path=tmp_path / "log-1")
        kept.supervisor.add(other)
        await until(lambda: kept.supervisor.status()[1].pid is not None)
        pid = kept.supervisor.status()[1].pid
        assert pid is not None

        await kept.supervisor.remove("worker-1")

        assert kept.supervisor.names == ["worker-0"]
        assert session_members(pid) == []
        assert kept.state == "running"


async def test_a_hundred_forced_restarts_leave_descriptors_threads_and_files_as_they_were(tmp_path: Path) -> None:
    kept = Kept("import sys; sys.stdin.read()", tmp_path / "log")

    def held() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(os.listdir(tmp_path))

    async with kept.running():
        await kept.reaches("running")
        before: tuple[int, int, int] | None = None
        for number in range(100):
            first = kept.keeper.incarnation
            kept.keeper.restart()
            await kept.keeper.until(lambda first=first: kept.keeper.incarnation > first and kept.state == "running")  # type: ignore[misc]  # a default holds the number of this round
            if number == 9:
                before = held()

        assert kept.supervisor.status()[0].restarts[Cause.REQUESTED] == 100
        assert before is not None
        descriptors, tasks, files = before
        await until(lambda: held()[0] <= descriptors)  # the pipe of the last one may just be closing
        assert held()[1] <= tasks + 4, "asyncio's pool grows up to its bound"
        assert held()[2] == files
