from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kctl_agent.message import Message
from kctl_agent.process.tracebacks import MAX_CHARACTERS, stack_of, traceback_of
from kctl_agent.sinker.handler import MAX_KINDS, REPEAT_SECONDS, FailureLog, Handler, HandlerError
from tests.clock import Clock

MESSAGES = [Message("t", 0, 5, None, b"", 0)]


def failure(handle: Callable[[list[Message]], Any], timeout_seconds: float = 10.0) -> HandlerError:
    handler = Handler("shop:handle", handle, timeout_seconds)
    try:
        with pytest.raises(HandlerError) as caught:
            handler(MESSAGES)
    finally:
        handler.close()
    return caught.value


def parse(amount: str) -> int:
    return int(amount)


@pytest.mark.shows("log and dead letter have a bounded traceback of a handler's error or hang")
def test_what_a_handler_raises_comes_with_its_traceback_its_cause_and_no_frame_of_ours() -> None:
    def handle(_messages: list[Message]) -> list[bool]:
        try:
            parse("many")
        except ValueError as error:
            raise KeyError("order 12") from error
        return []

    error = failure(handle)

    lines = error.trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'order 12'"
    assert "ValueError: invalid literal for int() with base 10: 'many'" in lines
    assert "    return int(amount)" in lines
    assert [line for line in lines if "kctl_agent" in line and "tests" not in line] == []
    assert error.text == f"{error}\n{error.trace}"
    assert "\n" not in str(error)


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_traceback_is_bounded_and_keeps_its_beginning_and_its_end(size: int) -> None:
    def handle(_messages: list[Message]) -> list[bool]:
        raise ValueError("\n".join(["first", *["x" * 100] * size, "last"]))

    trace = failure(handle).trace

    assert len(trace) < MAX_CHARACTERS + 100
    assert trace.startswith("Traceback")
    assert trace.endswith("last")
    assert ("characters left out" in trace) == (size > 1)


def test_a_recursion_without_end_has_a_short_traceback() -> None:
    def handle(messages: list[Message]) -> list[bool]:
        return handle(messages)

    assert "RecursionError" in failure(handle).trace


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


def test_an_exception_that_cannot_be_printed_is_named_by_its_type() -> None:
    def handle(_messages: list[Message]) -> list[bool]:
        raise Unprintable

    error = failure(handle)

    assert str(error) == "the handler shop:handle raised Unprintable on t-0 offset 5 (1 message)"
    assert "raise Unprintable" in error.trace


def test_an_answer_that_cannot_be_printed_is_named_by_its_type() -> None:
    assert "returned a Unprintable instead of a list of bools" in str(failure(lambda _: Unprintable()))


def test_a_lone_surrogate_in_a_message_is_escaped() -> None:
    def handle(_messages: list[Message]) -> list[bool]:
        raise ValueError("no file \udcff.txt")

    error = failure(handle)

    assert "ValueError: no file \\udcff.txt" in str(error)
    error.text.encode()


def test_the_stack_of_a_thread_that_hangs_shows_where() -> None:
    release, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait()  # the shop

    thread = threading.Thread(target=hang)
    thread.start()
    begun.wait()
    shown = stack_of(thread.ident)
    release.set()
    thread.join()

    assert shown.startswith("Stack of the call (most recent call last):\n")
    assert "release.wait()  # the shop" in shown or "begun.set()" in shown
    assert stack_of(None) == ""


def test_frames_of_ours_are_shown_where_they_are_asked_for() -> None:
    with pytest.raises(HandlerError) as caught:
        Handler("shop:handle", lambda _: None, 1.0)(MESSAGES)

    assert "handler.py" in traceback_of(caught.value, own_frames=True)


def trace_at(line: int) -> str:
    return f'Traceback (most recent call last):\n  File "h.py", line {line}, in handle\nValueError: order {line * 17}'


def test_a_traceback_is_logged_once_a_minute_and_its_sentence_always(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failures = FailureLog(logging.getLogger("kctl_agent.test"), clock)
    for _ in range(3):
        failures.error(HandlerError("it failed", trace_at(1)))
    failures.error(HandlerError("it failed elsewhere", trace_at(2)))
    clock.now += REPEAT_SECONDS
    failures.error(HandlerError("it failed", trace_at(1)))

    texts = [record.getMessage() for record in caplog.records]
    assert [text.splitlines()[0] for text in texts] == [*["it failed"] * 3, "it failed elsewhere", "it failed"]
    assert ["Traceback" in text for text in texts] == [True, False, False, True, True]
    assert all(line.startswith("    ") for line in texts[0].splitlines()[1:])


def test_however_many_places_fail_the_log_gets_a_bounded_number_of_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("kctl_agent.test"), Clock())
    for line in range(1000):
        failures.error(HandlerError("it failed", trace_at(line)))

    assert sum("Traceback" in record.getMessage() for record in caplog.records) == MAX_KINDS
