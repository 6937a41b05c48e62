"""Threads for work that may hang, because it accesses a disk, a mount or a storage."""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
DISK_SECONDS = 5.0


class DaemonThreads:
    """Threads that run submitted work. The process can end while they still work, unlike with `concurrent.futures`.
    Only one thread may submit work."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._have_started = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._work.put((future, work))
        if not self._have_started:
            self._have_started = True
            for number in range(self._number):
                threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()
        return future

    def close(self) -> None:
        """Ends the threads after all submitted work, without waiting for them."""
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
            del given, future, work  # keep no references while idle


_DISK = DaemonThreads(1, "kctl-disk")
"""Separate from asyncio's few threads, which kctl needs to kill processes."""


async def on_disk(work: Callable[..., T], *args: Any) -> T:
    """Runs `work`, which accesses a small file, outside the event loop. All callers share one thread. Raises
    TimeoutError (an OSError) after 5 s, and the errors of `work`."""
    try:
        async with asyncio.timeout(DISK_SECONDS):
            return await asyncio.wrap_future(_DISK.submit(partial(work, *args)))
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, "the disk does not answer") from None
