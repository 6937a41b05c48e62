"""A stop request that a signal handler may make."""

from __future__ import annotations

import os
import select


class StopRequest:
    """A flag for signal handlers and threads. A signal handler that sets a `threading.Event` can deadlock with the
    `wait` that it interrupts."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self.is_asked = False

    def ask(self) -> None:
        if not self.is_asked:
            self.is_asked = True
            os.write(self._writer, b"s")

    def wait(self, seconds: float) -> bool:
        if not self.is_asked:
            select.select([self._reader], [], [], max(seconds, 0.0))
        return self.is_asked

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
