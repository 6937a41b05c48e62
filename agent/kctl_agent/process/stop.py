"""Ends a process on request, and when its master ends. Dumps the stacks of a hung process."""

import ctypes
import faulthandler
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


class StopRequest:
    """A flag that signal handlers and threads may set."""

    def __init__(self) -> None:
        # Not an Event: its `set` in a signal handler deadlocks if the interrupted `wait` holds the event's lock.
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


def watch_parent(stop: Callable[[], None]) -> None:
    """Calls `stop`, perhaps in another thread, at SIGTERM and when the master ends. Call this in the main thread."""
    faulthandler.enable(all_threads=True)  # the master sends SIGABRT to a hung process
    signal.signal(signal.SIGTERM, lambda *_: stop())
    parent = os.getppid()
    # Stdin does not end with the master if another process has inherited the pipe.
    # Linux sends the signal when the master's thread that started this process ends, so it must be the main thread.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        stop()
    threading.Thread(target=_watch, args=(stop,), name="kctl-parent-watch", daemon=True).start()


def _watch(stop: Callable[[], None]) -> None:
    while sys.stdin.readline():
        pass
    _LOG.warning("the master is gone; stopping")
    stop()
