from __future__ import annotations

import logging
import subprocess
import sys
import threading
from functools import partial

import pytest

from kctl import daemon_threads, logs
from kctl.daemon_threads import DaemonThreads, on_disk

BLOCKED = """
import threading
from kctl.daemon_threads import DaemonThreads
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


async def test_a_hung_disk_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_threads, "DISK_SECONDS", 0.05)
    thawed, begun = threading.Event(), threading.Event()

    for work in (thawed.wait, begun.set):
        with pytest.raises(TimeoutError, match="the disk does not answer"):
            await on_disk(work)
    thawed.set()
    monkeypatch.undo()

    assert await on_disk(pow, 2, 3) == 8
    assert not begun.is_set(), "its caller has gone on without it"


def test_a_hung_disk_of_the_log_is_waited_for_at_the_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    thawed, lines = threading.Event(), list[str]()

    class Hung(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            thawed.wait()
            lines.append(record.getMessage())

    monkeypatch.setattr(logs, "_MOST_LINES", 3)
    monkeypatch.setattr(logging.root, "handlers", [Hung()])
    with logs.written_behind():
        for number in range(100):
            logging.warning("line %d", number)
        thawed.set()

    assert 3 <= len(lines) <= 5, "more are dropped"
    assert lines[:3] == [f"line {number}" for number in range(3)]
