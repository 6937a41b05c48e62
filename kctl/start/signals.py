"""Handles signals and tasks, and reports to systemd, for `kctl start` and `kctl exporter`."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any


def tune_process() -> None:
    # kafka-python logs each lost connection many times; collectors and `broker_cache` log once what an operator needs.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of each malformed request
    # The loop must not wait 5 ms for the interpreter each time it has released it.
    sys.setswitchinterval(0.001)
    # A snapshot is many objects without cycles, and a search for cycles blocks everything. So collect rarely, and never
    # many at once: 20 instead of 2 scanned 200,000 objects in 60 ms. With 100,000 instead of 10,000, garbage of callers
    # grew by 43 MB before a collection (test_hostile_frames_master).
    gc.set_threshold(10_000, 2, 200)


def task(work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
    return asyncio.create_task(work, name=name)


async def end(tasks: Sequence[asyncio.Task[object]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_STOP = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Events set by signals: `stop` by the first SIGTERM or SIGINT, `now` by the second, and `reload` by SIGHUP."""

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


def notify(*words: str) -> None:
    """Sends words such as `READY=1`, `STOPPING=1` or `STATUS=…` to systemd, if it listens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(words).encode(), address)


def watchdog_seconds() -> float:
    """Returns the interval for reports to systemd: half of WatchdogSec=, or infinity without a watchdog."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return math.inf
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return math.inf


async def pet_watchdog() -> None:
    """Reports to systemd's watchdog periodically. Never returns."""
    seconds = watchdog_seconds()
    while seconds < math.inf:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds)
    await asyncio.Event().wait()
