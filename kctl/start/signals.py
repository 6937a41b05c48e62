"""The signals that a master obeys."""

from __future__ import annotations

import asyncio
import signal

_STOP = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """SIGTERM and SIGINT as events: the first asks for an orderly stop, any further one for an end at once. SIGHUP too:
    a reload."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.now = asyncio.Event()
        self.reload = asyncio.Event()

    def __enter__(self) -> StopSignals:
        loop = asyncio.get_running_loop()
        for number in _STOP:
            loop.add_signal_handler(number, self._received)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (*_STOP, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _received(self) -> None:
        (self.now if self.stop.is_set() else self.stop).set()
