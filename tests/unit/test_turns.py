"""Tests side by side leave the machine to one that is alone; threads stand for processes, each with its own files."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path

from tests.turns import turn


class Taker(threading.Thread):
    """Takes a turn and keeps it until it is asked to `leave`."""

    def __init__(self, folder: Path, *, alone: bool) -> None:
        super().__init__()
        self._folder = folder
        self._alone = alone
        self._leaves = threading.Event()
        self.is_inside = threading.Event()
        self.start()

    def run(self) -> None:
        with turn(self._folder, alone=self._alone):
            self.is_inside.set()
            self._leaves.wait()

    def leave(self) -> None:
        self._leaves.set()
        self.join()


def is_held(folder: Path, name: str) -> bool:
    """Whether a test waits at the door, or is inside: another one that would not wait is refused."""
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_several_are_inside_together_but_nobody_beside_one_that_is_alone(
    tmp_path: Path, eventually: Callable[..., object]
) -> None:
    first, second = Taker(tmp_path, alone=False), Taker(tmp_path, alone=False)
    assert first.is_inside.wait(60)
    assert second.is_inside.wait(60)

    alone = Taker(tmp_path, alone=True)
    eventually(lambda: is_held(tmp_path, "next"))
    later = Taker(tmp_path, alone=False)
    first.leave()
    assert not alone.is_inside.is_set()
    second.leave()
    assert alone.is_inside.wait(60)
    assert not later.is_inside.is_set(), "it came after the one that is alone"
    alone.leave()

    assert later.is_inside.wait(60)
    later.leave()
    assert not is_held(tmp_path, "inside")
