"""Ends a process with its master, and dumps the stacks of one that hangs."""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def start(stop: Callable[[], None]) -> None:
    """Calls `stop`, from any thread or signal handler, when the master is gone. Main thread only.

    The end of stdin shows that the master has ended. If another process has inherited the pipe, SIGTERM by
    prctl(PR_SET_PDEATHSIG) does; the kernel sends it when the thread that started the process ends, so a master starts
    processes from its main thread. SIGABRT, which the master sends to a hung process, writes all stacks to stderr.
    """
    faulthandler.enable(all_threads=True)
    signal.signal(signal.SIGTERM, lambda *_: stop())
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        stop()
    threading.Thread(target=_watch, args=(stop,), name="kctl-parent-watch", daemon=True).start()


def _watch(stop: Callable[[], None]) -> None:
    while sys.stdin.readline():
        pass
    _LOG.warning("the master is gone; stopping")
    stop()
