"""The thread that ends a process of ours with its master, and the stack dump for one that hangs."""

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
    """Has `stop` called, from any thread or a signal handler, when the master is gone. Two ways to notice: the end of
    stdin, whose other end the master holds, however it ends; and SIGTERM by prctl(PR_SET_PDEATHSIG), for a process
    whose stdin somebody else has inherited too; it comes when the thread ends that started the process, so a master
    starts processes from its main thread. SIGABRT writes the stacks of all threads to stderr and ends the process: that
    is what the master sends to one that does not answer. Main thread only."""
    faulthandler.enable(all_threads=True)
    signal.signal(signal.SIGTERM, lambda *_: stop())
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it has died between the two
        stop()
    threading.Thread(target=_watch, args=(stop,), name="kctl-parent-watch", daemon=True).start()


def _watch(stop: Callable[[], None]) -> None:
    while sys.stdin.readline():
        pass
    _LOG.warning("the master is gone; stopping")
    stop()
