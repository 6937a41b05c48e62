"""Dead letters for an event loop: read and changed in a few threads of their own, so that nothing of it holds the loop.

Whatever is read is a page, and a storage is open for as long as one call. A change goes on page by page and reports
each; when nobody listens any more it ends with the page it is at.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kctl import audit
from kctl.errors import OperationRefused
from kctl_agent.errors import Busy, StorageError

if TYPE_CHECKING:
    from kctl_agent.storage.base import DeadLetterStore, Selection

__all__ = ["Verb", "Workbench"]

T = TypeVar("T")
Verb = Literal["requeue", "delete"]

THREADS = 3
"""Two that read, and one that changes."""
MOST_WAITING = 8


class _Stopped(Exception):
    """Nobody listens to it any more."""


class Workbench:
    """Belongs to one event loop."""

    def __init__(
        self, opened: Callable[[], AbstractContextManager[DeadLetterStore]], audit_log: Callable[[], Path]
    ) -> None:
        self._opened = opened
        self._audit_log = audit_log
        self._threads = ThreadPoolExecutor(THREADS, "kctl-dead-letters")
        self._at_work = 0
        self._is_changing = False
        self._stop = threading.Event()

    def close(self) -> None:
        """What is under way ends soon."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, work: Callable[[DeadLetterStore], T]) -> T:
        """What `work` returns, in one of our threads.

        Raises:
            Busy: as many wait as may.
            OperationRefused: the storage cannot do that.
            StorageError: it cannot be used now.
        """
        if self._at_work >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} questions about dead letters are under way already")
        self._at_work += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)
        finally:
            self._at_work -= 1

    async def change(
        self, verb: Verb, selection: Selection, expect: int, by: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What was done so far, `{"done": messages}` after each page; the last one has `"complete": True`.

        Raises what `read` does, and CountChanged: not `expect` dead letters match; nothing was changed.
        """
        if self._is_changing:
            raise OperationRefused("dead letters are being put back or deleted: wait until that is done, or stop it")
        loop, steps, stop = asyncio.get_running_loop(), asyncio.Queue[int](), threading.Event()

        def progress(done: int) -> None:
            loop.call_soon_threadsafe(steps.put_nowait, done)
            if stop.is_set() or self._stop.is_set():
                raise _Stopped(f"stopped by the caller after {done} messages")

        work = partial(self._changed, verb, selection, expect, by, progress)
        running = asyncio.ensure_future(self.read(work))
        self._is_changing = True
        running.add_done_callback(self._changed_all)
        try:
            while not running.done():
                step = asyncio.ensure_future(steps.get())
                await asyncio.wait({running, step}, return_when=asyncio.FIRST_COMPLETED)
                if step.done():
                    yield {"done": step.result()}
                step.cancel()
            yield {"done": running.result(), "complete": True}
        finally:
            stop.set()

    def _work(self, work: Callable[[DeadLetterStore], T]) -> T:
        try:
            with self._opened() as store:
                return work(store)
        except StorageError as error:
            if error.retriable or error.code == "count_changed":
                raise
            raise OperationRefused(str(error)) from error

    def _changed(
        self,
        verb: Verb,
        selection: Selection,
        expect: int,
        by: str,
        progress: Callable[[int], None],
        store: DeadLetterStore,
    ) -> int:
        params = {**selection.named, "count": expect}
        with audit.operation(self._audit_log(), f"dead letters {verb}", params, via="http", by=by) as running:
            done = (store.requeue_dead if verb == "requeue" else store.remove_dead)(selection, expect, progress)
            running.text = f"{done} of {expect} dead letters {'put back' if verb == 'requeue' else 'deleted'}"
        return done

    def _changed_all(self, running: asyncio.Future[int]) -> None:
        self._is_changing = False
        if not running.cancelled():
            running.exception()  # it was raised to the caller, or nobody is there any more
