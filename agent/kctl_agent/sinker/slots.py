"""Limits how many tasks of a worker call its handler at the same time. Otherwise one slow handler would fill all slots
of an engine."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.02


class Slots:
    """A semaphore between processes: one locked file per holder, which the kernel unlocks however the holder ends."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / f"slot-{number}" for number in range(count)]

    @contextmanager
    def held(self) -> Iterator[None]:
        descriptor = self._take()
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process forked by the handler may still have the file open
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
