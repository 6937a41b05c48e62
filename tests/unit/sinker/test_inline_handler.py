"""Mode `directly`: a put calls the handler, and the stored offset is the handler's progress."""

import errno
import fcntl
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.errors import RegistryUnusable
from kctl_agent.sinker import inline_handler
from kctl_agent.sinker.handler import FailureLog
from kctl_agent.sinker.inline_handler import HandlingStorage, Slots
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.file import offset_table
from tests.conformance.given import chunk, next_offset
from tests.conftest import raising

CODE = """
import threading
from kctl_agent.errors import RegistryUnusable, Undecodable
calls = []
released = threading.Event()
def handler(of_the_bad_one):
    def handle(messages):
        calls.append([(m.offset, m.tries) for m in messages])
        return [m.offset != 2 or of_the_bad_one() for m in messages]
    return handle
def choke():
    raise ValueError("no amount")
def hang():
    return released.wait()
def wait():
    raise RegistryUnusable("the schema registry does not answer")
takes = handler(lambda: True)
refuses = handler(lambda: False)
explains = handler(lambda: KeyError("amount"))
decodes = handler(lambda: Undecodable("BadRecord: cut"))
chokes, hangs, waits = handler(choke), handler(hang), handler(wait)
class CannotOpen:
    def open(self): raise OSError("no route")
    def handle(self, messages): raise AssertionError
"""

Make = Callable[..., HandlingStorage]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(inline_handler, "_failures", FailureLog(inline_handler.log))
    (tmp_path / "direct_handlers.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    import direct_handlers  # type: ignore[import-not-found]

    yield direct_handlers
    direct_handlers.released.set()
    for calls in inline_handler._open.values():
        calls.close()
    inline_handler._open.clear()
    del sys.modules["direct_handlers"]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(handler: str, **more: Any) -> HandlingStorage:
        limits = {"batch_size": 4, "max_tries": 3, "retry_backoff_seconds": 0.001, "handler_timeout_seconds": 10.0}
        code = {"handler": f"direct_handlers:{handler}", "import_dir": str(tmp_path), "ordered": False}
        path = str(tmp_path / "s.sqlite")
        storage = HandlingStorage(
            {"path": path, "block_messages": 500, "compression": "none", "handler": code | limits | more}
        )
        storage.prepare()
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        return pickle.loads(pickle.dumps(storage))  # type: ignore[no-any-return]

    return made


@pytest.mark.shows("`directly` retries failed messages, then makes dead letters; a hanging call is left behind")
def test_a_put_calls_the_handler_with_every_message_and_moves_the_stored_offset(make: Make, module: Any) -> None:
    storage = make("takes")
    with storage.writer() as writer:
        put = writer.put(chunk(0, 6))
        again = writer.put(chunk(0, 8))

    assert [[offset for offset, _ in call] for call in module.calls] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert (put.stored, again.stored, again.skipped, next_offset(storage)) == (6, 2, 6, 8)


@pytest.mark.parametrize(
    ("handler", "tries", "error"),
    [
        ("refuses", 3, "the handler returned False"),
        ("explains", 3, "KeyError: 'amount'"),
        ("decodes", 1, "BadRecord: cut"),
    ],
)
def test_a_failure_is_retried_alone_then_dead(make: Make, module: Any, handler: str, tries: int, error: str) -> None:
    storage = make(handler)
    with storage.writer() as writer:
        writer.put(chunk(0, 4))

    assert module.calls[1:] == [[(2, number)] for number in range(1, tries)]
    (dead_letter,) = storage.dead()
    assert (dead_letter.offset, dead_letter.tries, dead_letter.error) == (2, tries, error)
    assert next_offset(storage) == 4


def test_a_task_that_dies_early_leaves_no_dead_letter(make: Make, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = make("refuses")
    monkeypatch.setattr(offset_table, "advance", raising(SystemExit()))
    with pytest.raises(SystemExit), storage.writer() as writer:
        writer.put(chunk(0, 4))

    assert list(storage.dead()) == []


@pytest.mark.parametrize("max_tries", [1, 2, 3])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_spoiled_call_costs_others_one_delivery_more(
    max_tries: int, ordered: bool, make: Make, module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make("chokes", max_tries=max_tries, ordered=ordered)
    with storage.writer() as writer:
        writer.put(chunk(0, 4))

    deliveries = [offset for call in module.calls for offset, _ in call]
    assert [deliveries.count(offset) for offset in (0, 1, 3)] == [2, 2, 2]
    (dead_letter,) = storage.dead()
    assert dead_letter.offset == 2
    first, *trace = dead_letter.error.splitlines()
    assert first.endswith("raised ValueError: no amount on t-0 offset 2 (1 message)")
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-2:] == ['    raise ValueError("no amount")', "ValueError: no amount"]
    assert trace[-2] in caplog.text


def test_a_call_that_hangs_is_left_behind(make: Make, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_handler, "GRACE_SECONDS", 0.0)
    storage = make("hangs", handler_timeout_seconds=0.1, max_tries=2)
    with storage.writer() as writer:
        writer.put(chunk(0, 4))
        writer.put(chunk(4, 6))

    (dead_letter,) = storage.dead()
    assert (dead_letter.offset, next_offset(storage)) == (2, 6)
    assert "did not return within 0.1 s on t-0 offset 2 (1 message)" in dead_letter.error
    assert "released.wait()" in dead_letter.error


def test_a_handler_that_cannot_be_opened_fails_the_batch_which_is_tried_again(make: Make, module: Any) -> None:
    with pytest.raises(StorageUnusable, match="no route"):
        make("CannotOpen").writer()


def test_an_outage_of_the_registry_fails_the_batch_and_makes_no_dead_letter(make: Make, module: Any) -> None:
    storage = make("waits")

    with pytest.raises(RegistryUnusable), storage.writer() as writer:
        writer.put(chunk(0, 4))

    assert (next_offset(storage), list(storage.dead()), len(module.calls)) == (0, [], 1)


def hold(folder: Path, is_held: threading.Event) -> None:
    with Slots(folder, 2).held():
        is_held.set()
        signal.pause()


def test_there_are_no_more_holders_than_slots_and_one_that_is_killed_makes_room(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    held = [fork.Event() for _ in range(3)]
    first, second, third = holders = [fork.Process(target=hold, args=(tmp_path, each)) for each in held]
    first.start()
    second.start()
    assert held[0].wait(10)
    assert held[1].wait(10)
    third.start()
    try:
        assert not held[2].wait(0.2)
        first.kill()
        assert held[2].wait(10), "the slot of a process that was killed is free"
    finally:
        for process in holders:
            process.kill()
            process.join()


def test_a_process_that_the_holder_has_forked_keeps_no_slot(tmp_path: Path) -> None:
    """A handler's process pool: a forked child keeps the locked file open while it lives."""
    fork = multiprocessing.get_context("fork")
    is_over = fork.Event()
    with Slots(tmp_path, 1).held():
        child = fork.Process(target=is_over.wait)
        child.start()
    try:
        waiting = threading.Thread(target=lambda: Slots(tmp_path, 1).held().__enter__(), daemon=True)
        waiting.start()
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        is_over.set()
        child.join()


def test_a_lock_that_fails_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, "no locks available")))
    before = os.listdir("/proc/self/fd")

    with pytest.raises(OSError, match="no locks"):
        Slots(tmp_path, 1)._take()

    assert os.listdir("/proc/self/fd") == before
