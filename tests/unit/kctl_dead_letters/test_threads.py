"""Threads that do not hold up the end of their process."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

import pytest

from kctl.dead_letters.workbench import DaemonThreads

BLOCKED = """
import threading
from kctl.dead_letters.workbench import DaemonThreads
DaemonThreads(1, "t").submit(threading.Event().wait)
print("ends", flush=True)
"""


def test_work_returns_or_raises_in_another_thread() -> None:
    threads = DaemonThreads(2, "t")

    assert [future.result(10) for future in [threads.submit(lambda: 1), threads.submit(lambda: 2)]] == [1, 2]
    with pytest.raises(KeyError):
        threads.submit(partial({}.pop, "x")).result(10)
    threads.close()


def test_work_that_is_cancelled_before_its_turn_is_not_begun() -> None:
    threads, gate, begun = DaemonThreads(1, "t"), threading.Event(), threading.Event()
    first = threads.submit(gate.wait)
    cancelled = threads.submit(begun.set)
    assert cancelled.cancel()
    gate.set()

    assert first.result(10)
    assert threads.submit(begun.is_set).result(10) is False
    threads.close()


def test_a_process_ends_while_a_thread_waits() -> None:
    ran = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=True)

    assert ran.stdout == "ends\n"
