"""Calls the handler inside a Spark batch, if `storage.mode` is `directly`. Otherwise, the batch stores the messages.

Spark's executors call the handler with up to `batch_size` messages. Failed messages are retried one by one until each
is acknowledged or becomes a dead letter. After that, the stored offset moves past all messages of the call.
"""

import fcntl
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kctl_agent.errors import RegistryUnusable
from kctl_agent.message import Message
from kctl_agent.schemas.formats import Formats
from kctl_agent.sinker.handler import FailureLog, Handler, HandlerError, decode_messages, load
from kctl_agent.sinker.in_flight import Ack, Final
from kctl_agent.storage.base import StorageUnusable, Writer
from kctl_agent.storage.causes import RETURNED_FALSE
from kctl_agent.storage.chunk import Advance, Chunk, Put
from kctl_agent.storage.file.storage import DirectlyStorage
from kctl_agent.storage.kinds import queue_options
from kctl_agent.storage.put_rules import cut, judged, skipped

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0  # added to the handler's own time-out, which `async` handlers enforce themselves
MAX_WAIT_SECONDS = 3600.0
_failures = FailureLog(log)


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    handler: str
    import_dir: str
    batch_size: int
    max_tries: int
    retry_backoff_seconds: float
    handler_timeout_seconds: float
    ordered: bool
    formats: Formats = Formats()  # noqa: RUF009 - it is immutable

    def load(self) -> Handler:
        decode_messages(self.formats)
        return load(self.handler, self.handler_timeout_seconds, Path(self.import_dir))


class HandlingStorage(DirectlyStorage):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` has the settings of `DirectlyStorage`. Its key `handler` has the fields of `HandlerSettings`. Its
        optional key `slots` has the arguments of `Slots`."""
        self.settings = dict(settings)
        given = settings["handler"]
        self.handler_settings = HandlerSettings(**{**given, "formats": Formats.of(given.get("formats"))})
        slots = settings.get("slots")
        self.slots = None if slots is None else Slots(Path(slots["folder"]), slots["count"])
        super().__init__(Path(settings["path"]), **queue_options(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        return HandlingStorage, (self.settings,)

    def writer(self) -> Writer:
        return _HandlingWriter(self, _calls(self.handler_settings))


class Calls:
    """Calls a handler on a separate thread. If a call hangs, abandons it and loads a new handler for the next call."""

    def __init__(self, settings: HandlerSettings) -> None:
        self._settings = settings
        self._begin()

    def __call__(self, messages: list[Message]) -> list[Ack]:
        self._asked.put(messages)
        try:
            answer = self._answers.get(timeout=self._settings.handler_timeout_seconds + GRACE_SECONDS)
        except queue.Empty:
            error = self._handler.hangs(messages, self._thread.ident)
            self._asked.put(None)  # should it ever return
            self._begin()
            raise error from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _begin(self) -> None:
        self._handler = self._settings.load()
        self._asked: queue.SimpleQueue[list[Message] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[list[Ack] | BaseException] = queue.SimpleQueue()
        arguments = (self._handler, self._asked, self._answers)
        self._thread = threading.Thread(target=_serve, args=arguments, name="kctl-handler", daemon=True)
        self._thread.start()
        opened = self._answers.get()
        if isinstance(opened, BaseException):
            raise StorageUnusable(f"the handler {self._settings.handler} cannot be opened: {opened!r}") from opened


def _serve(
    handler: Handler,
    inbox: queue.SimpleQueue[list[Message] | None],
    answers: queue.SimpleQueue[list[Ack] | BaseException],
) -> None:
    try:
        handler.open()
    except Exception as error:
        answers.put(error)
        return
    answers.put([])
    while (messages := inbox.get()) is not None:
        try:
            answers.put(handler(messages))
        except (HandlerError, RegistryUnusable) as error:
            answers.put(error)
    handler.close()


_open: dict[HandlerSettings, Calls] = {}


def _calls(settings: HandlerSettings) -> Calls:
    if settings not in _open:
        _open[settings] = Calls(settings)
    return _open[settings]


class _HandlingWriter(Writer):
    def __init__(self, storage: HandlingStorage, call: Callable[[list[Message]], list[Ack]]) -> None:
        self._storage = storage
        self._settings = storage.handler_settings
        self._call = call
        self._pause = threading.Event()

    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        with nullcontext() if self._storage.slots is None else self._storage.slots.held():
            return [self._put(chunk) for chunk in chunks]

    def _put(self, chunk: Chunk) -> Put:
        stored = judged(chunk, self._storage.stored_offsets([chunk.tp]).get(chunk.tp))
        skip, done = skipped(chunk, stored), stored.next
        for block in cut(chunk, skip, self._settings.batch_size, None, "none"):
            dead = self._handle(block.messages())
            # Not one transaction for all chunks: messages handled before an error stay handled.
            self._storage.finish(Advance(*chunk.tp, chunk.version, done, block.last + 1), dead, chunk.topic_id)
            done = block.last + 1
        self._storage.advance_offsets([Advance(*chunk.tp, chunk.version, done, chunk.end)])
        return Put(len(chunk.columns) - skip, skip, chunk.columns.bytes)

    def close(self) -> None:
        pass  # the handler stays open for the next task

    def _handle(self, messages: list[Message]) -> list[tuple[Message, str]]:
        errors = self._errors(messages)
        failed = [message for message in messages if message.offset in errors]
        if self._settings.ordered:  # messages after the first should not have been handled yet
            firsts = [errors[message.offset] if i == 0 else None for i, message in enumerate(failed)]
            return [x for m, error in zip(failed, firsts, strict=True) for x in self._retry([m], {m.offset: error})]
        return self._retry(failed, errors)

    def _errors(self, messages: list[Message]) -> dict[int, str | None]:
        try:
            acks = self._call(messages)
        except HandlerError as error:
            _failures.error(error)
            return dict.fromkeys((message.offset for message in messages), error.text if len(messages) == 1 else None)
        pairs = zip(messages, acks, strict=True)
        return {message.offset: ack or RETURNED_FALSE for message, ack in pairs if ack is not True}

    def _retry(self, failed: list[Message], errors: dict[int, str | None]) -> list[tuple[Message, str]]:
        rounds = max(self._settings.max_tries - 1, int(None in errors.values()))
        dead: list[tuple[Message, str]] = []
        for tries in range(1, rounds + 1):
            final = [m for m in failed if isinstance(errors[m.offset], Final)]
            dead += [(replace(m, tries=tries), errors[m.offset] or "") for m in final]
            failed = [m for m in failed if m not in final]
            if not failed:
                return dead
            self._pause.wait(min(self._settings.retry_backoff_seconds * 2.0 ** min(tries - 1, 30), MAX_WAIT_SECONDS))
            errors = {k: v for m in failed for k, v in self._errors([replace(m, tries=tries)]).items()}
            failed = [message for message in failed if message.offset in errors]
        return dead + [(replace(m, tries=rounds + 1), errors[m.offset] or RETURNED_FALSE) for m in failed]


_POLL_SECONDS = 0.02


class Slots:
    """Limits how many tasks of a worker call its handler at once. An engine that workers share may run hundreds."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / f"slot-{number}" for number in range(count)]

    @contextmanager
    def held(self) -> Iterator[None]:
        descriptor = self._take()
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process forked by the handler may still have the file open
            os.close(descriptor)

    def _take(self) -> int:
        pause = threading.Event()
        while True:
            for path in self._paths:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a killed task releases it
                    return descriptor
                except BaseException as error:
                    os.close(descriptor)
                    if not isinstance(error, BlockingIOError):
                        raise
            pause.wait(_POLL_SECONDS)
