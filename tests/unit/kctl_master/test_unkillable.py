"""The kill is patched out, so processes survive SIGKILL."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kctl.master.process
import kctl.master.process_supervisor
from kctl.errors import OperationUnknown
from kctl.master.health import HealthRules
from kctl.master.process import Process, kill_session, session_members
from tests.processes import until
from tests.unit.kctl_master.conftest import UP, Fleet

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
    """worker-0, which may be unkillable, and worker-1."""
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
    """The survivor's session cannot be recorded, or a socket cannot be removed."""

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
async def test_a_gone_child_is_followed_by_no_other_while_its_child_lives(
    tmp_path: Path, hung: set[int], caplog: pytest.LogCaptureFixture
) -> None:
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
        assert (tmp_path / "worker-0.pid").read_text() == f"{session} 0\n", "for the next master"
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
    """A process that an earlier master started with this mark."""
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
    """Its environment cannot be read, like that of a handler's `sudo` child. The master leaves a stranger's session
    alone."""
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
