from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.message import Message
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.sinker.handler import Handler, HandlerError, described, load
from kctl_agent.sinker.in_flight import Ack

MESSAGES = [Message("t", 0, offset, None, b"", 0) for offset in (5, 6, 8)]


def called(returned: Any) -> list[Ack]:
    handler = Handler("shop:handle", lambda _messages: returned, 1.0)
    try:
        return handler(MESSAGES)
    finally:
        handler.close()


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
    ],
)
def test_an_answer_that_does_not_fit_the_messages_names_what_was_returned(returned: Any, complaint: str) -> None:
    with pytest.raises(HandlerError) as failure:
        called(returned)

    text = str(failure.value)
    assert text.startswith("the handler shop:handle returned ")
    assert complaint in text
    assert text.endswith(" on t-0 offsets 5..8 (3 messages)")
    assert len(text) < 400


def test_a_message_may_have_a_reason_in_words_or_as_an_exception() -> None:
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError) as raised:
        nothing["amount"]

    assert called([True, False, "no such customer"]) == [True, False, "no such customer"]
    of_itself, with_place, _ = called([TimeoutError(), raised.value, True])
    assert of_itself == "TimeoutError"
    assert str(with_place).startswith("KeyError: 'amount'\nTraceback (most recent call last):\n")
    assert 'in test_a_message_may_have_a_reason_in_words_or_as_an_exception\n    nothing["amount"]' in str(with_place)


@pytest.mark.parametrize("error", [ValueError("no\nsuch order"), SystemExit(3), asyncio.CancelledError()])
def test_whatever_a_handler_raises_is_one_line_about_the_batch(error: BaseException) -> None:
    def handle(_messages: list[Message]) -> list[bool]:
        raise error

    handler = Handler("shop:handle", handle, 1.0)
    with pytest.raises(HandlerError) as failure:
        handler(MESSAGES)

    handler.close()
    assert str(failure.value).startswith(f"the handler shop:handle raised {type(error).__name__}")
    assert "\n" not in str(failure.value)


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

    handler = Handler("shop:handle", handle, 10.0)
    with pytest.raises(HandlerError, match="raised TimeoutError: the shop does not answer"):
        handler(MESSAGES)
    handler.close()


def test_async_calls_share_one_event_loop_with_open_and_close() -> None:
    loops = set()

    class Shop:
        async def open(self) -> None:
            loops.add(asyncio.get_running_loop())

        async def handle(self, messages: list[Message]) -> list[bool]:
            loops.add(asyncio.get_running_loop())
            return [True] * len(messages)

        async def close(self) -> None:
            loops.add(asyncio.get_running_loop())

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

    with pytest.raises(BootstrapError) as failure:
        load(f"{name}:handle", 1.0, tmp_path)

    assert f"sinkers.handler '{name}:handle'" in str(failure.value)
    assert complaint in str(failure.value)
