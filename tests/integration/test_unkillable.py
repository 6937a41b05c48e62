"""A process on a disk that hangs survives SIGKILL: what an operator sees of the fleet."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.master.process import session_members
from tests.conftest import eventually
from tests.frozen_disk import FrozenDisk, frozen_disk
from tests.integration.conftest import Master


@pytest.fixture
def disk(short_dir: Path) -> Iterator[FrozenDisk]:
    with frozen_disk(short_dir) as one:
        yield one


@pytest.fixture
def on_disk(master: Callable[..., Master], disk: FrozenDisk) -> Callable[[str], Master]:
    (disk.path / "worker-0").touch()

    def start(behaviour: str) -> Master:
        conf = {"KCTL_TEST_WORKER": behaviour, "KCTL_TEST_FAULT_FILE": str(disk.path / "NAME")}
        return master(workers={"stop_timeout_seconds": 0.5}, spark={"conf": conf})

    return start


def sleeping(session: int) -> list[int]:
    """Pids of the session that have a thread in uninterruptible sleep."""
    stats = [path for pid in session_members(session) for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [int(path.parts[2]) for path in stats if path.read_text().rpartition(")")[2].split()[0] == "D"]


def freeze(disk: FrozenDisk, session: int) -> int:
    """Freezes the disk; returns the pid of the session that hangs."""
    disk.freeze()
    [pid] = eventually(lambda: sleeping(session), what="a process hangs")
    return int(pid)


@pytest.mark.shows("a process on a hung disk is `unkillable` until the disk returns; other processes continue")
@pytest.mark.parametrize(
    "behaviour", ["writes", *(pytest.param(each, marks=pytest.mark.long) for each in ("writes_beside", "child_writes"))]
)
def test_a_hung_worker_is_unkillable(on_disk: Callable[[str], Master], disk: FrozenDisk, behaviour: str) -> None:
    fleet = on_disk(behaviour)
    before = fleet.status()
    session, other = (before[name]["pid"] for name in ("worker-0", "worker-1"))
    hung = freeze(disk, session)

    restarted = fleet.kctl("restart", "worker-0", "--wait")

    assert restarted.returncode == 3, restarted
    assert f"pid {hung} survives SIGKILL: it waits in the kernel" in restarted.stdout + restarted.stderr
    row = fleet.status()["worker-0"]
    assert (row["state"], row["desired"], row["pid"]) == ("unkillable", "running", hung)
    verdict = fleet.ask("status", of_master=True).result["verdict"]
    assert f"worker-0 is unkillable (pid {hung} survives SIGKILL" in verdict["reason"]
    shown = fleet.kctl("status")
    assert (shown.returncode, "unkillable" in shown.stdout) == (1, True)
    assert re.search(r'kctl_worker_state\{.*worker="worker-0",state="unkillable"\} 1', fleet.get("/metrics"))
    beside = fleet.status()["worker-1"]
    assert (beside["pid"], beside["state"], beside["restarts"]) == (other, "running", 0)

    disk.thaw()

    eventually(lambda: fleet.status()["worker-0"]["state"] == "running", what="it runs again")
    assert session_members(session) == []
    assert fleet.status()["worker-1"]["pid"] == other


@pytest.mark.long
@pytest.mark.shows("`kctl stop` ends in time if a process survives SIGKILL, and names its pid")
def test_a_stop_beside_a_hung_worker_ends_in_time(on_disk: Callable[[str], Master], disk: FrozenDisk) -> None:
    fleet = on_disk("writes")
    session = fleet.status()["worker-0"]["pid"]
    hung = freeze(disk, session)
    began = time.monotonic()

    stopped = fleet.kctl("stop", "--timeout", "30")

    assert (stopped.returncode, fleet.process.wait(10)) == (1, 1)
    assert time.monotonic() - began < 30
    assert f"still there: worker-0 (pid {hung})" in stopped.stderr
    again = Master(fleet.config)
    eventually(again.is_announced, what="the next master is there")
    try:
        eventually(lambda: again.states() == ["unkillable", "running"], what="the next master waits for that one")
        assert again.status()["worker-0"]["pid"] == hung
        disk.thaw()
        eventually(lambda: again.states() == ["running", "running"], what="it runs again")
        assert session_members(session) == []
    finally:
        disk.thaw()
        assert again.stop() == 0


@pytest.mark.long
@pytest.mark.shows("a hung disk of log_dir, with the master's own log, stops no answer of the master")
def test_a_hung_log_disk_keeps_answers_coming(master: Callable[..., Master], disk: FrozenDisk, short_dir: Path) -> None:
    (short_dir / "master.log").symlink_to(disk.path / "master.log")
    fleet = master(fleet={"log_dir": str(disk.path / "logs")})
    session, other = (fleet.status()[name]["pid"] for name in ("worker-0", "worker-1"))
    disk.freeze()
    os.kill(session, signal.SIGKILL)  # the next process cannot open its log
    answered: list[float] = []

    def is_named() -> bool:
        began = time.monotonic()
        row = fleet.status()["worker-0"]
        answered.append(time.monotonic() - began)
        return "the disk does not answer" in (row["last_error"] or "")

    eventually(is_named, what="the hung disk is named")
    paused = fleet.kctl("pause", "--all")
    assert paused.returncode == 0, f"what cannot be written down is done all the same: {paused}"
    assert is_named()
    assert max(answered) < 3
    assert fleet.status()["worker-1"]["pid"] == other

    disk.thaw()

    eventually(lambda: fleet.status()["worker-0"]["state"] == "running", what="it runs again")
    assert fleet.stop() == 0
    assert re.search(r"action=backoff worker=worker-0: .* the disk does not answer", fleet.log.read_text())
    assert "action=audit_failed" in fleet.log.read_text()
