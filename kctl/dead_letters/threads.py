"""Threads for work that waits. Unlike those of `concurrent.futures` they do not hold up the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads:
    """They start with the first work. Belongs to the thread that submits."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._have_started = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """What `work` returns or raises, in one of the threads."""
        future: Future[T] = Future()
        self._work.put((future, work))
        if not self._have_started:
            self._have_started = True
            for number in range(self._number):
                threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()
        return future

    def close(self) -> None:
        """Each thread ends once it has done what was submitted; nobody waits for that."""
        for _ in range(self._number):
            self._work.put(None)

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            future, work = given
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del given, future, work  # nothing of it is kept while there is nothing to do
