from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kctl_agent.sinker.inline_handler import Slots
from tests.conftest import eventually

HOLD = """
import sys
from pathlib import Path
from kctl_agent.sinker.inline_handler import Slots
with Slots(Path(sys.argv[1]), 2).held():
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_there_are_no_more_holders_than_slots_and_one_that_is_killed_makes_room(tmp_path: Path) -> None:
    first, second = holder(tmp_path), holder(tmp_path)
    is_held = threading.Event()

    def third() -> None:
        with Slots(tmp_path, 2).held():
            is_held.set()

    waiting = threading.Thread(target=third)
    waiting.start()
    try:
        assert not is_held.wait(0.2)
        first.kill()
        eventually(is_held.is_set, 10, "the slot of a process that was killed is free")
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
        waiting.join()


def test_a_process_that_the_holder_has_forked_keeps_no_slot(tmp_path: Path) -> None:
    """A handler's process pool: a forked child keeps the locked file open while it lives."""
    fork = multiprocessing.get_context("fork")
    is_over = fork.Event()
    with Slots(tmp_path, 1).held():
        child = fork.Process(target=is_over.wait)
        child.start()
    try:
        waiting = threading.Thread(target=lambda: Slots(tmp_path, 1).held().__enter__(), daemon=True)
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        is_over.set()
        child.join()


def test_a_lock_that_fails_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    before = os.listdir("/proc/self/fd")

    with pytest.raises(OSError, match="no locks"):
        Slots(tmp_path, 1)._take()

    assert os.listdir("/proc/self/fd") == before
