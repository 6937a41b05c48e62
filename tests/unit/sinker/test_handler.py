import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.message import Message
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.process.tracebacks import MAX_CHARACTERS, traceback_of
from kctl_agent.sinker.handler import MAX_KINDS, REPEAT_SECONDS, FailureLog, Handler, HandlerError, described, load
from kctl_agent.sinker.in_flight import Ack
from tests.clock import Clock
from tests.conftest import raising

Handle = Callable[[list[Message]], Any]

MESSAGES = [Message("t", 0, offset, None, b"", 0) for offset in (5, 6, 8)]


def called(handle: Handle, timeout_seconds: float = 10.0) -> list[Ack]:
    with closing(Handler("shop:handle", handle, timeout_seconds)) as handler:
        return handler(MESSAGES)


def failure(handle: Handle) -> HandlerError:
    with pytest.raises(HandlerError) as caught:
        called(handle)
    return caught.value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (None, "returned None instead of a list of bools"),
        (True, "returned True instead of a list of bools"),
        ({5: True}, "returned {5: True} instead of a list of bools"),
        ([], "returned 0 values for 3 messages"),
        ([True] * 4, "returned 4 values for 3 messages"),
        ([True, "", True], "returned '', neither a bool nor a reason, for t-0 offset 6"),
        ([True, True, 1], "returned 1, neither a bool nor a reason, for t-0 offset 8"),
        ((each for each in [True]), "returned a generator instead of a list of bools"),
        ([ValueError] * 3, "returned <class 'ValueError'>, neither"),
        ([b"x" * 1000] * 3, "…, neither a bool nor a reason"),
        (Unprintable(), "returned a Unprintable instead of a list of bools"),
    ],
)
def test_an_answer_that_does_not_fit_the_messages_names_what_was_returned(returned: Any, complaint: str) -> None:
    text = str(failure(lambda _: returned))

    assert text.startswith("the handler shop:handle returned ")
    assert complaint in text
    assert text.endswith(" on t-0 offsets 5..8 (3 messages)")
    assert len(text) < 400


def test_a_message_may_have_a_reason_in_words_or_as_an_exception() -> None:
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError) as raised:
        nothing["amount"]

    assert called(lambda _: [True, False, "no such customer"]) == [True, False, "no such customer"]
    of_itself, with_place, _ = called(lambda _: [TimeoutError(), raised.value, True])
    assert of_itself == "TimeoutError"
    assert str(with_place).startswith("KeyError: 'amount'\nTraceback (most recent call last):\n")
    assert 'in test_a_message_may_have_a_reason_in_words_or_as_an_exception\n    nothing["amount"]' in str(with_place)


def test_an_async_handler_that_takes_too_long_is_cancelled_and_the_next_call_goes_on() -> None:
    cancelled: list[bool] = []

    async def handle(messages: list[Message]) -> list[bool]:
        if not cancelled:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
        return [True] * len(messages)

    handler = Handler("shop:handle", handle, 0.05)
    with pytest.raises(HandlerError, match=r"did not return within 0\.05 s on t-0 offsets 5\.\.8 \(3 messages\)"):
        handler(MESSAGES)

    assert cancelled == [True]
    assert handler(MESSAGES) == [True, True, True]
    handler.close()


def test_a_timeout_error_of_the_handlers_own_is_not_taken_for_ours() -> None:
    async def handle(_messages: list[Message]) -> list[bool]:
        raise TimeoutError("the shop does not answer")

    assert "raised TimeoutError: the shop does not answer" in str(failure(handle))


def test_async_calls_share_one_event_loop_with_open_and_close() -> None:
    loops = set()

    class Shop:
        async def noted(self, *_: object) -> list[bool]:
            loops.add(asyncio.get_running_loop())
            return [True] * len(MESSAGES)

        open = handle = close = noted

    handler = Handler("shop:Shop", Shop(), 1.0)
    handler.open()
    handler(MESSAGES)
    handler(MESSAGES)
    handler.close()

    assert len(loops) == 1


def test_messages_of_many_partitions_are_named_shortly() -> None:
    assert described(MESSAGES[:1]) == "t-0 offset 5 (1 message)"
    many = [Message("t", partition, 1, None, None, 0) for partition in range(8)]
    assert described(many).endswith("t-4 offset 1, 3 more partitions (8 messages)")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def handle(", "SyntaxError"),
        ("other = 1", "has no attribute 'handle'"),
        ("handle = 1", "neither a function nor a class with a method `handle`"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def handle(): pass", "cannot be called with one argument, the list of messages"),
        ("def handle(messages): yield True", "has a `yield`: it must return a list"),
        ("async def handle(messages): yield True", "has a `yield`: it must return a list"),
        ("def handle(messages, more): pass", "cannot be called with one argument, the list of messages"),
        ("class handle:\n    def __init__(self): raise ValueError('no key')", "ValueError: no key"),
    ],
)
def test_a_bad_handler_ends_a_start(code: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    name = f"shop_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)

    with pytest.raises(BootstrapError) as raised:
        load(f"{name}:handle", 1.0, tmp_path)

    assert f"sinkers.handler '{name}:handle'" in str(raised.value)
    assert complaint in str(raised.value)
    assert "importlib" not in traceback_of(raised.value)


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
    assert "handler.py" in traceback_of(error, own_frames=True)


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_traceback_is_bounded_and_keeps_its_beginning_and_its_end(size: int) -> None:
    def without_end(messages: list[Message]) -> list[bool]:
        return without_end(messages)

    trace = failure(raising(ValueError("\n".join(["first", *["x" * 100] * size, "last"])))).trace

    assert len(trace) < MAX_CHARACTERS + 100
    assert trace.startswith("Traceback")
    assert trace.endswith("last")
    assert ("characters left out" in trace) == (size > 1)
    assert "RecursionError" in failure(without_end).trace


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no\nsuch order"), "ValueError"),
        (SystemExit(3), "SystemExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (Unprintable(), "Unprintable on t-0 offsets 5..8 (3 messages)"),
        (ValueError("no file \udcff.txt"), "ValueError: no file \\udcff.txt"),
    ],
    ids=["of several lines", "SystemExit", "cancelled", "that cannot be printed", "with a lone surrogate"],
)
def test_whatever_a_handler_raises_is_one_line_about_the_batch(error: BaseException, words: str) -> None:
    failed = failure(raising(error))

    assert str(failed).startswith(f"the handler shop:handle raised {words}")
    assert "\n" not in str(failed)
    assert "    raise error\n" in failed.trace
    failed.text.encode()


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

    for line in range(1000):
        failures.error(HandlerError("it failed", trace_at(line)))
    assert sum("Traceback" in record.getMessage() for record in caplog.records[4:]) == MAX_KINDS
