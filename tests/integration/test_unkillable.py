"""A process on a disk that hangs survives SIGKILL: what an operator sees of the fleet."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.master.process import session_members
from tests.conftest import eventually
from tests.integration.conftest import Master


class FrozenDisk:
    """An ext4 file system in a file, mounted at `path`. While it is frozen, a process that writes to it sleeps
    uninterruptibly and survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_frozen = False

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", self.path], check=True)
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            subprocess.run(["fsfreeze", "-u", self.path], check=True)
            self.is_frozen = False


@pytest.fixture
def disk(short_dir: Path) -> Iterator[FrozenDisk]:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("fsfreeze") is None:
        pytest.skip("needs root, mkfs.ext4 and fsfreeze: a disk that hangs")
    image, path = short_dir / "disk.img", short_dir / "disk"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, path], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    disk = FrozenDisk(path)
    try:
        yield disk
    finally:
        disk.thaw()
        subprocess.run(["umount", "-l", path], check=True)


def sleeping(session: int) -> list[int]:
    stats = [path for pid in session_members(session) for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [int(path.parts[2]) for path in stats if path.read_text().rpartition(")")[2].split()[0] == "D"]


def freeze(disk: FrozenDisk, session: int) -> int:
    """Returns the pid of the process of the session that hangs."""
    disk.freeze()
    [pid] = eventually(lambda: sleeping(session), what="a process hangs")
    return int(pid)


@pytest.mark.shows("`kctl stop` ends in time if a process survives SIGKILL, and names its pid")
@pytest.mark.shows("a process on a hung disk is `unkillable` until the disk returns; other processes continue")
def test_a_hung_worker_is_unkillable(master: Callable[..., Master], disk: FrozenDisk) -> None:
    (disk.path / "worker-0").touch()
    conf = {"KCTL_TEST_WORKER": "writes", "KCTL_TEST_FAULT_FILE": str(disk.path / "NAME")}
    fleet = master(workers={"stop_timeout_seconds": 0.5}, spark={"conf": conf})
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

    hung = freeze(disk, fleet.status()["worker-0"]["pid"])

    stopped = fleet.kctl("stop", "--timeout", "30")

    assert (stopped.returncode, fleet.process.wait(10)) == (1, 1)
    assert f"still there: worker-0 (pid {hung})" in stopped.stderr
    disk.thaw()
    eventually(lambda: not session_members(hung))


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
