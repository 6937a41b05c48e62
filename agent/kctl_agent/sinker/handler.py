"""Loads and calls the user's handler, checks its result, and logs its failures. A handler is a function, or a class
with `handle` and optionally `open` and `close`. These functions and methods may be `async`."""

import asyncio
import inspect
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kctl_agent.errors import AgentError, RegistryUnusable, Undecodable
from kctl_agent.message import Message, decode_by
from kctl_agent.process.bootstrap import BootstrapError, loaded
from kctl_agent.process.tracebacks import indented, named, short, stack_of, traceback_of
from kctl_agent.rpc.messages import number_of
from kctl_agent.schemas.formats import Formats
from kctl_agent.sinker.in_flight import Ack, Final

REPEAT_SECONDS = 60.0  # a known traceback is logged again after this time; its sentence always is
MAX_KINDS = 20
MAX_NAMED_RUNS = 5


class HandlerError(AgentError, code="handler_failed"):
    """The handler raised, took too long, or returned a wrong result. The error names the handler and the messages."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.trace = trace

    @property
    def text(self) -> str:
        if isinstance(self.__cause__, Undecodable):
            return Final(self.__cause__)
        return f"{self}\n{self.trace}" if self.trace else str(self)


class FailureLog:
    """Logs every failure, but the same traceback at most once a minute. Thread-safe."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: OrderedDict[str, float] = OrderedDict()

    def error(self, error: HandlerError) -> None:
        trace = error.trace if error.trace and self._is_due(_kind(error.trace)) else ""
        self._log.error("%s", indented(str(error), trace))

    def _is_due(self, kind: str) -> bool:
        now = self._clock()
        with self._lock:
            while self._logged_at and now - next(iter(self._logged_at.values())) >= REPEAT_SECONDS:
                self._logged_at.popitem(last=False)
            if kind in self._logged_at or len(self._logged_at) >= MAX_KINDS:
                return False
            self._logged_at[kind] = now
            return True


def _kind(trace: str) -> str:
    # Tracebacks count as the same if they have the same code lines and exception type.
    lines = trace.splitlines()
    places = [line for line in lines if line.lstrip(" |+").startswith('File "')]
    return "\n".join([*places, lines[-1].partition(":")[0]])


def described(messages: Sequence[Message]) -> str:
    """Describes messages, for example `orders-0 offsets 5..9, payments-1 offset 7 (6 messages)`."""
    runs: dict[tuple[str, int], tuple[int, int]] = {}
    for message in messages:
        where = (message.topic, message.partition)
        first, last = runs.get(where, (message.offset, message.offset))
        runs[where] = (min(first, message.offset), max(last, message.offset))
    named = [
        f"{topic}-{partition} " + (f"offset {first}" if first == last else f"offsets {first}..{last}")
        for (topic, partition), (first, last) in list(runs.items())[:MAX_NAMED_RUNS]
    ]
    more = [number_of(len(runs) - MAX_NAMED_RUNS, "more partition")] if len(runs) > MAX_NAMED_RUNS else []
    return f"{', '.join(named + more)} ({number_of(len(messages), 'message')})"


class Handler:
    """Calls the user's handler on the caller's thread. Async handlers run in one event loop until `close`."""

    def __init__(self, name: str, target: Any, timeout_seconds: float) -> None:
        self.name = name
        self._target = target
        self._handle: Callable[[list[Message]], Any] = target.handle if hasattr(target, "handle") else target
        self._timeout_seconds = timeout_seconds
        self._runner = asyncio.Runner()

    def open(self) -> None:
        self._lifecycle("open")

    def close(self) -> None:
        try:
            self._lifecycle("close")
        finally:
            self._runner.close()

    def __call__(self, messages: list[Message]) -> list[Ack]:
        """Calls the handler and returns its result for each message. Raises HandlerError if the handler fails, or if an
        `async` handler takes too long. Raises RegistryUnusable if the schema registry cannot be used."""
        try:
            returned = self._handle(messages)
            if inspect.isawaitable(returned):
                returned = self._runner.run(self._within_time(returned, messages))
        except (HandlerError, RegistryUnusable):
            raise
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            raise self.failed(f"raised {named(error)}", messages, traceback_of(error)) from error
        return self._judged(returned, messages)

    def failed(self, what: str, messages: Sequence[Message], trace: str = "") -> HandlerError:
        return HandlerError(f"the handler {self.name} {what} on {described(messages)}", trace)

    def timed_out(self, messages: Sequence[Message], trace: str = "") -> HandlerError:
        return self.failed(f"did not return within {self._timeout_seconds:g} s", messages, trace)

    def hangs(self, messages: Sequence[Message], thread: int | None) -> HandlerError:
        return self.timed_out(messages, stack_of(thread))

    async def _within_time(self, returned: Awaitable[Any], messages: list[Message]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_seconds) as scope:
                return await returned
        except TimeoutError as error:
            if scope.expired():
                raise self.timed_out(messages, traceback_of(error)) from error
            raise

    def _judged(self, returned: Any, messages: list[Message]) -> list[Ack]:
        if not isinstance(returned, list | tuple):
            raise self.failed(f"returned {_shown(returned)} instead of a list of bools", messages)
        if len(returned) != len(messages):
            raise self.failed(f"returned {len(returned)} values for {len(messages)} messages", messages)
        acks: list[Ack] = list(returned)
        for i, ack in enumerate(returned):
            if ack is True or ack is False:
                continue
            if isinstance(ack, RegistryUnusable):
                raise ack
            if isinstance(ack, BaseException):
                acks[i] = Final(ack) if isinstance(ack, Undecodable) else _reason(ack)
            elif not isinstance(ack, str) or not ack.strip():
                where = f"{messages[i].topic}-{messages[i].partition} offset {messages[i].offset}"
                raise self.failed(f"returned {_shown(ack)}, neither a bool nor a reason, for {where}", messages)
        return acks

    def _lifecycle(self, name: str) -> None:
        step = getattr(self._target, name, None)
        if step is not None:
            done = step()
            if inspect.isawaitable(done):
                self._runner.run(_finished(done))


def load(name: str, timeout_seconds: float, import_dir: Path | None = None) -> Handler:
    target = loaded("sinkers.handler", name, import_dir)
    handle = getattr(target, "handle", target)
    if not callable(handle):
        raise BootstrapError(f"sinkers.handler {name!r} is neither a function nor a class with a method `handle`")
    try:
        with suppress(ValueError):  # a handler written in C has no signature
            inspect.signature(handle).bind([])
    except TypeError:
        text = f"sinkers.handler {name!r} cannot be called with one argument, the list of messages"
        raise BootstrapError(text) from None
    if inspect.isgeneratorfunction(handle) or inspect.isasyncgenfunction(handle):
        raise BootstrapError(f"sinkers.handler {name!r} has a `yield`: it must return a list")
    return Handler(name, target, timeout_seconds)


def decode_messages(formats: Formats) -> None:
    """Sets how `Message.decoded` decodes keys and values in this process."""
    if (formats.key, formats.value) == ("bytes", "bytes"):
        return
    from kctl_agent.schemas.decoding import Decoder  # and fastavro, which bytes do not need

    decoder = Decoder(formats)
    decode_by(
        lambda data, headers: decoder.value(data, headers).value, lambda data, headers: decoder.key(data, headers).value
    )


async def _finished(awaitable: Awaitable[Any]) -> None:
    await awaitable


def _reason(error: BaseException) -> str:
    trace = traceback_of(error) if error.__traceback__ else ""
    return f"{named(error)}\n{trace}" if trace else named(error)


def _shown(value: object) -> str:
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return "a generator"
    with suppress(Exception):
        return short(repr(value))
    return f"a {type(value).__name__}"
