"""A limit on how many tasks of a worker call its handler at a time, where tasks of several workers share Spark's slots.

In an engine one whose handler is slow would fill the slots of all. So it has slots enough there, and a task waits here.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.02


class Slots:
    """A semaphore between processes: a locked file for each holder, which the kernel frees however its holder ends."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / f"slot-{number}" for number in range(count)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds one slot, as soon as there is one. Raises OSError: the folder cannot be used."""
        descriptor = self._take()
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that the handler has forked holds the file open too
            os.close(descriptor)

    def _take(self) -> int:
        pause = threading.Event()
        while True:
            for path in self._paths:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                else:
                    return descriptor
            pause.wait(_POLL_SECONDS)
