"""Whose turn it is where several tests run at once (pytest-xdist): those that measure the machine have it alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["turn"]


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Waits until no other process of the run is in a test that is `alone`; if this one is, until none is in any.

    `folder` is the same for all of them. First come, first served, so none waits for more than one test of each.
    """
    with (folder / "next").open("w") as door, (folder / "inside").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)  # closing it is not enough where a test has forked
