"""A limit of messages per second."""

from __future__ import annotations

import threading
import time

__all__ = ["Pace"]


class Pace:
    """Limits a loop to `rate` messages a second; with None it never waits."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = 0
        self._pause = threading.Event()

    def wait(self) -> None:
        """Waits before a message, where it would be too early."""
        if self._rate is not None:
            left = self._began + self._count / self._rate - time.monotonic()
            if left > 0:
                self._pause.wait(left)
            self._count += 1
