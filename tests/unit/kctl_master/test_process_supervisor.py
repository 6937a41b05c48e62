import asyncio
import errno
import functools
import itertools
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kctl.master.process
import kctl.master.process_supervisor
from kctl.errors import OperationUnknown
from kctl.master.health import HealthRules, judge
from kctl.master.process import Process, kill_session, session_members
from kctl.master.process_supervisor import SupervisionPolicy
from kctl.master.restart import Cause, RestartPolicy, SupervisionState
from kctl_agent.paths import ProcessIdentity, socket_owner
from kctl_agent.replies.workers import PingReply
from tests.processes import until
from tests.unit.kctl_master.conftest import QUICK, SLOW_PINGS, UP, Fleet

SLOW = RestartPolicy(backoff_min_seconds=60, backoff_max_seconds=60, stable_seconds=60)


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
    judged = Mock(wraps=judge)
    monkeypatch.setattr(kctl.master.process_supervisor, "judge", judged)
    fleet = Fleet(tmp_path, UP, rules=HealthRules(ping_timeout_seconds=0.5))
    async with fleet.running():
        fleet.silent.add("worker-0")
        fleet.supervisor.on_heartbeats(
            {"worker-0": PingReply(fleet[0].pid or 0), "guest": PingReply(1)}, time.monotonic() + 60
        )
        asked, before = fleet.asked, judged.call_count

        await until(lambda: judged.call_count >= before + 50)

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


STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdin.read()"
WITH_CHILD = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=subprocess.DEVNULL)
with open(sys.argv[1], "w") as file:
    file.write(str(child.pid))
{UP}"""


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Pids that /proc shows until they leave this set, even after a kill."""
    pids: set[int] = set()
    sessions: dict[int, int] = {}
    real = kctl.master.process.processes

    def processes(some: object = None) -> list[Process]:
        found = {each.pid: each for each in real(some)}  # type: ignore[arg-type]
        sessions.update({pid: found[pid].session for pid in pids & found.keys()})
        return [*(found | {pid: Process(pid, "D", sessions[pid], 0, 0, 1) for pid in pids}).values()]

    monkeypatch.setattr(kctl.master.process, "processes", processes)
    monkeypatch.setattr(kctl.master.process_supervisor, "KILL_SECONDS", 0.2)
    return pids


def fleet_of(folder: Path, program: str = UP) -> Fleet:
    rules = HealthRules(ping_timeout_seconds=0.3)
    return Fleet(folder, program, UP, rules=rules, stop_timeout_seconds=0.1)


def hang(hung: set[int], fleet: Fleet) -> int:
    pid = fleet[0].pid
    assert pid is not None
    hung.add(pid)
    session_members(pid)  # the fixture learns its session
    return pid


async def child_in(folder: Path) -> int:
    await until(lambda: (folder / "pid").exists() and bool((folder / "pid").read_text()))
    return int((folder / "pid").read_text())


@pytest.mark.parametrize("survives", [True, False])
async def test_a_full_disk_ends_no_supervisor(
    tmp_path: Path, hung: set[int], monkeypatch: pytest.MonkeyPatch, *, survives: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fleet = fleet_of(tmp_path)
    async with fleet.running():
        pid, other = fleet[0].pid, fleet[1].pid
        assert pid is not None
        if survives:
            hang(hung, fleet)
        with monkeypatch.context() as patched:
            patched.setattr(kctl.master.process_supervisor, "record_session", full)
            patched.setattr(kctl.master.process_supervisor, "remove_socket", full)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: fleet[0].state == "unkillable" if survives else fleet[0].restarts == 1)
            assert (fleet[1].state, fleet[1].pid) == ("running", other)
        if survives:
            fleet.process.restart()
            await until(lambda: fleet[0].desired == "running")
            assert (fleet[0].state, fleet.process.incarnation) == ("unkillable", 1)
        hung.clear()
        await until(lambda: fleet[0].state == "running")


@pytest.mark.shows("a process that survives SIGKILL is `unkillable`, with its pid, and ends no other")
async def test_none_follows_a_living_child(tmp_path: Path, hung: set[int], caplog: pytest.LogCaptureFixture) -> None:
    fleet = fleet_of(tmp_path, WITH_CHILD)
    async with fleet.running():
        child, session = await child_in(tmp_path), fleet[0].pid
        assert session is not None
        hung.add(child)
        session_members(session)

        os.kill(session, signal.SIGKILL)
        await until(lambda: fleet[0].state == "unkillable")

        assert (fleet[0].pid, fleet[0].desired) == (child, "running")
        assert (fleet[1].state, fleet[1].restarts) == ("running", 0)
        assert (fleet[0].last_error or "").startswith(f"pid {child} survives SIGKILL: it waits in the kernel, for ")
        assert socket_owner(tmp_path / "worker-0.sock") == ProcessIdentity(session, 0), "for the next master"
        hung.clear()
        await until(lambda: fleet[0].state == "running")
        assert fleet[0].restarts_by_cause["signal"] == 1
        assert not (tmp_path / "worker-0.pid").exists()
    assert caplog.text.count("action=unkillable worker=worker-0") == 1


async def test_other_users_processes_are_named(tmp_path: Path, hung: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(tmp_path, WITH_CHILD)
    kill = os.kill

    def refusing(pid: int, number: int) -> None:
        if pid in hung:
            raise PermissionError
        kill(pid, number)

    async with fleet.running():
        child = await child_in(tmp_path)
        hung.add(child)
        monkeypatch.setattr(os, "kill", refusing)

        with pytest.raises(OperationUnknown, match=f"pid {child} survives SIGKILL: it belongs to another user"):
            await fleet.process.stop()

        assert (fleet[0].state, fleet[0].desired) == ("unkillable", "stopped")
        hung.clear()
        await until(lambda: fleet[0].state == "stopped")


async def test_a_supervisor_ends_in_time(tmp_path: Path, hung: set[int], caplog: pytest.LogCaptureFixture) -> None:
    fleet = fleet_of(tmp_path, STUBBORN)
    began = float("inf")
    async with fleet.running():
        pid = hang(hung, fleet)

        began = time.monotonic()
        await fleet.supervisor.stop()
        assert [each.state for each in fleet.supervisor.status()] == ["unkillable", "stopped"]

    assert time.monotonic() - began < 10
    assert fleet.supervisor.has_survivors
    assert f"action=left worker=worker-0: pid {pid} survives SIGKILL" in caplog.text


async def test_an_unkillable_process_is_kept_when_scaling_down(tmp_path: Path, hung: set[int]) -> None:
    fleet = fleet_of(tmp_path)
    async with fleet.running():
        pid = hang(hung, fleet)

        with pytest.raises(OperationUnknown, match=f"pid {pid} survives SIGKILL"):
            await fleet.supervisor.remove("worker-0")
        assert fleet.supervisor.names == ["worker-0", "worker-1"]

        hung.clear()
        await until(lambda: fleet[0].state == "stopped")
        await fleet.supervisor.remove("worker-0")
        assert fleet.supervisor.names == ["worker-1"]


async def session_leader(code: str = UP, *arguments: str, mark: str = "") -> asyncio.subprocess.Process:
    more: dict[str, Any] = {"start_new_session": True, "env": {"KCTL_SUPERVISED": mark}}
    command = (sys.executable, "-c", code, *arguments)
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, **more)


@pytest.mark.shows("a new master starts the other processes next to one that its predecessor could not kill")
async def test_what_an_earlier_master_could_not_kill_keeps_its_place(tmp_path: Path, hung: set[int]) -> None:
    former = await session_leader()
    hung.add(former.pid)
    session_members(former.pid)
    fleet = fleet_of(tmp_path)
    fleet.process.former = former.pid
    async with fleet.running("unkillable", "running"):
        assert fleet[0].pid == former.pid

        hung.clear()
        await until(lambda: fleet[0].state == "running")

        assert await former.wait() == -signal.SIGKILL
        assert fleet[0].pid != former.pid


@pytest.mark.parametrize(("leader", "is_found"), [("gone", True), ("ours", True), ("another's", False)])
async def test_a_new_master_finds_another_users_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: str, *, is_found: bool
) -> None:
    """The environment cannot be read, like that of a handler's `sudo` child."""
    code = WITH_CHILD.replace("stdin=subprocess.DEVNULL)", "stdin=subprocess.DEVNULL, env={})")
    mark = "" if leader == "another's" else "run/worker-0.sock"
    former = await session_leader(code, str(tmp_path / "pid"), mark=mark)
    child = await child_in(tmp_path)
    if leader == "gone":
        former.kill()
        await former.wait()
    read = Path.read_bytes

    def unreadable(path: Path) -> bytes:
        if path.is_relative_to(f"/proc/{child}"):
            raise PermissionError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", unreadable)

    killed, _ = await kill_session(former.pid, "run/worker-0.sock")

    assert killed == {"gone": 1, "ours": 2, "another's": 0}[leader]
    assert session_members(former.pid) == ([] if is_found else [former.pid, child])
    await kill_session(former.pid)
    await former.wait()


async def test_a_killed_process_counts_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes its memory, and with it the environment, before the process is a zombie."""
    former = await session_leader(mark="run/worker-0.sock")
    environment = Path(f"/proc/{former.pid}/environ")
    await until(lambda: bool(environment.read_bytes()))  # exec() sets it a moment after it has closed our pipe

    def ends_slowly(_process: Process) -> str:
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"")
        return "it is ending"

    with monkeypatch.context() as patched:
        patched.setattr(kctl.master.process, "_kill", ends_slowly)
        _, survivors = await kill_session(former.pid, "run/worker-0.sock", 0.2)
    monkeypatch.undo()

    assert survivors == {former.pid: "it is ending"}
    await kill_session(former.pid)
    await former.wait()
