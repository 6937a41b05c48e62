"""At most so many messages a second."""

from __future__ import annotations

import threading
import time

__all__ = ["Pace"]


class Pace:
    """Waits, so that there are at most `rate` messages a second; with None it never does."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = 0
        self._pause = threading.Event()

    def wait(self) -> None:
        """Call it before each message."""
        if self._rate is not None:
            left = self._began + self._count / self._rate - time.monotonic()
            if left > 0:
                self._pause.wait(left)
            self._count += 1
