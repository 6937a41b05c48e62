"""Reads and changes dead letters in threads, so that the event loop never waits. A change processes dead letters in
pages. If the change is cancelled or the process ends, the change stops after the current page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kctl import audit
from kctl.daemon_threads import DaemonThreads
from kctl.dead_letters.storage import Verb, changed
from kctl.errors import OperationFailed, OperationRefused
from kctl_agent.errors import Busy, StorageError

if TYPE_CHECKING:
    from kctl.dead_letters.sending import Send
    from kctl_agent.schemas.decoding import Decoder
    from kctl_agent.storage.base import DeadLetterStore, Progress
    from kctl_agent.storage.selection import Selection

T = TypeVar("T")
_DONE = MappingProxyType({"requeue": "requeued", "delete": "deleted", "send": "sent"})
THREADS = 3  # two for reading, one for a change
MOST_WAITING = 8
_MESSAGES = frozenset({"key", "text", "traceback"})
"""Filters that may quote messages. Only the audit log has them, because more people may read the list of operations."""
Attend: TypeAlias = Callable[[str, dict[str, Any], str, Callable[[], object]], Callable[..., object]]
"""Lists an operation: (name, parameters, token name, function that stops the operation) -> function that takes its
text, and at the end its state."""


def _unlisted(*_: object) -> Callable[..., object]:
    return lambda *_: None


class _Change:
    def __init__(self, verb: Verb, selection: Selection, expect: int, by: str, to: str) -> None:
        self.verb, self.selection, self.expect, self.by, self.to = verb, selection, expect, by, to
        self.name = f"dead letters {verb}"
        self.params = {**selection.named, "count": expect, **({"to": to} if to else {})}
        self.stop = threading.Event()
        self.steps = asyncio.Queue[int]()
        self.report = _unlisted()
        self._so_far = ""

    def listed(self) -> dict[str, Any]:
        return {name: "(in the audit log)" if name in _MESSAGES else value for name, value in self.params.items()}

    def text(self, done: int) -> str:
        return f"{done} of {self.expect} dead letters {_DONE[self.verb]}"

    # Runs in the event loop, as does `on_end`.
    def on_page(self, done: int) -> None:
        self._so_far = self.text(done)
        self.report(self._so_far)
        self.steps.put_nowait(done)

    def on_end(self, running: asyncio.Future[int]) -> None:
        error = running.exception()
        if error is None:
            self.report(self.text(running.result()), "done")
        else:
            self.report("; ".join(filter(None, (self._so_far, str(error)))), "failed")


@dataclass(eq=False, repr=False)
class Workbench:
    """Reads and changes dead letters. Belongs to one event loop."""

    _opened: Callable[[], AbstractContextManager[DeadLetterStore]]
    _audit_log: Callable[[], Path]
    _sending: Callable[[str], AbstractContextManager[Send]]  # opens a sender to a topic
    _attend: Attend = _unlisted
    decoder: Decoder | None = field(default=None, kw_only=True)  # decodes messages for display

    def __post_init__(self) -> None:
        self._threads = DaemonThreads(THREADS, "kctl-dead-letters")
        self._at_work = 0
        self._change: Future[int] | None = None
        self._stop = threading.Event()

    def close(self) -> None:
        self._stop.set()
        self._threads.close()
        if self._change is not None:
            wait([self._change], timeout=5.0)  # for the current page, which then ends as by a kill

    async def read(self, work: Callable[[DeadLetterStore, Progress], T]) -> T:
        """Runs `work` in a thread and returns its result. If this call is cancelled, `work` fails at its next call of
        the progress function. Raises Busy, OperationRefused, StorageError, and OperationFailed after `close`."""
        stop = threading.Event()
        try:
            return await asyncio.wrap_future(self._submitted(lambda store: work(store, partial(self._go_on, stop))))
        finally:
            stop.set()

    async def change(
        self, verb: Verb, selection: Selection, expect: int, by: str, to: str = ""
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Changes dead letters. Yields `{"done": number}` after each page, and again at the end, with
        `"complete": True`. `to` is the topic for `send`. Raises CountChanged unless `expect` dead letters match,
        OperationFailed if the change is cancelled, and the errors of `read`."""
        if self._change is not None and not self._change.done():
            raise OperationRefused("another request is changing dead letters: wait until it ends, or stop it")
        change = _Change(verb, selection, expect, by, to)
        loop, stop = asyncio.get_running_loop(), change.stop

        def progress(done: int) -> None:
            if done:
                loop.call_soon_threadsafe(change.on_page, done)
            self._go_on(stop, done)

        self._change = self._submitted(partial(self._changed, change, progress))
        change.report = self._attend(change.name, change.listed(), by, stop.set)
        running = asyncio.wrap_future(self._change)
        running.add_done_callback(change.on_end)
        try:
            while not running.done():
                step = asyncio.ensure_future(change.steps.get())
                try:
                    await asyncio.wait({running, step}, return_when=asyncio.FIRST_COMPLETED)
                    if step.done():
                        yield {"done": step.result()}
                finally:
                    step.cancel()
            yield {"done": running.result(), "complete": True}
        finally:
            stop.set()

    def _go_on(self, stop: threading.Event, _: int) -> None:
        if stop.is_set() or self._stop.is_set():
            raise OperationFailed("stopped by its caller, a cancel, or the end of the master")

    def _submitted(self, work: Callable[[DeadLetterStore], T]) -> Future[T]:
        if self._at_work >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} requests about dead letters are already in progress")
        loop = asyncio.get_running_loop()
        self._at_work += 1
        future = self._threads.submit(partial(self._work, work))
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._is_done))
        return future

    def _is_done(self) -> None:
        self._at_work -= 1

    def _work(self, work: Callable[[DeadLetterStore], T]) -> T:
        try:
            with self._opened() as store:
                return work(store)
        except StorageError as error:
            if error.retriable or error.code == "count_changed":
                raise
            raise OperationRefused(str(error)) from error

    def _changed(self, change: _Change, progress: Progress, store: DeadLetterStore) -> int:
        with audit.operation(
            self._audit_log(), change.name, change.params, via="http", by=f"http token {change.by}".rstrip()
        ) as running:

            def report(done: int) -> None:
                running.text = change.text(done)
                progress(done)

            sending = partial(self._sending, change.to)
            done = changed(store, change.verb, change.selection, change.expect, report, sending)
            running.text = change.text(done) + store.note
        return done
