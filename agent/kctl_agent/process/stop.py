"""A request to stop that a signal handler may make."""

from __future__ import annotations

import os
import select


class StopRequest:
    """A flag that may be set from a signal handler and from any thread: no lock is taken, which a `threading.Event`
    does, and a signal handler that interrupts its `wait` in a bad moment waits for ever."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self.is_asked = False

    def ask(self) -> None:
        if not self.is_asked:
            self.is_asked = True
            os.write(self._writer, b"s")

    def wait(self, seconds: float) -> bool:
        """Waits until a stop is asked for, at most so long; returns whether it was."""
        if not self.is_asked:
            select.select([self._reader], [], [], max(seconds, 0.0))
        return self.is_asked

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
