"""A sinker's work on a storage in memory: claim, call the handler, settle, stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kctl_agent.message import Message
from kctl_agent.operations import Inbox
from kctl_agent.server import AgentServer
from kctl_agent.sinker.guard import Guard
from kctl_agent.sinker.handler import Handler
from kctl_agent.sinker.settings import SinkerSettings
from kctl_agent.sinker.sinker import Sinker
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.sinker.stop import Stop
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.conformance.given import fill, total
from kctl_agent.storage.memory import MemoryStorage

Handle = Callable[[list[Message]], list[bool]]


class Bench:
    """A sinker whose handler is `handle`; it is asked to stop within so many calls of it."""

    def __init__(self, folder: Path, handle: Handle, stop_after: int, **settings: object) -> None:
        self.storage = MemoryStorage(block_messages=3)
        self.calls: list[list[int]] = []
        self.stop = Stop()
        self._folder = folder
        self._handle = handle
        self._stop_after = stop_after
        self._settings = settings

    def run(self) -> None:
        given = {"batch_size": 3, "max_tries": 2, "retry_backoff_seconds": 0.0, "ordered": False} | self._settings
        settings = SinkerSettings(
            name="sinker-0", run_dir=self._folder, scratch_dir=self._folder, import_dir=self._folder, log_level="info",
            handler="h:h", batch_wait_seconds=0.0, lease_seconds=60.0, handler_timeout_seconds=60.0, storage={},
            **given,  # type: ignore[arg-type]
        )  # fmt: skip
        guard = Guard(self.storage, 60.0, 60.0, lambda _: None, lambda _: None)
        handler = Handler("h:h", self._called, 60.0)
        inbox = Inbox()
        stats = SinkerProcessStats("sinker-0", AgentServer(self._folder, "sinker-0"), self.storage, inbox)
        handler.open()
        try:
            Sinker(settings, self.storage, handler, stats, self.stop, guard, inbox).run()
        finally:
            handler.close()

    def _called(self, messages: list[Message]) -> list[bool]:
        self.calls.append([message.offset for message in messages])
        if len(self.calls) >= self._stop_after:
            self.stop.ask()
        return self._handle(messages)


@pytest.fixture
def bench(short_dir: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def made(handle: Handle, stop_after: int, **settings: object) -> Bench:
        benches.append(Bench(short_dir, handle, stop_after, **settings))
        return benches[-1]

    yield made
    for each in benches:
        each.stop.close()


def well(messages: list[Message]) -> list[bool]:
    return [True] * len(messages)


def test_what_is_handled_is_gone(bench: Callable[..., Bench]) -> None:
    own = bench(well, stop_after=2)
    fill(own.storage, 6)
    own.run()

    assert own.calls == [[0, 1, 2], [3, 4, 5]]
    assert total(own.storage) == (0, 0, 0, 0)


def test_what_is_refused_comes_again_alone_and_is_dead_after_the_last_try(bench: Callable[..., Bench]) -> None:
    own = bench(lambda messages: [message.offset != 1 for message in messages], stop_after=2)
    fill(own.storage, 3)
    own.run()

    assert own.calls == [[0, 1, 2], [1]]
    assert [dead_letter.offset for dead_letter in own.storage.dead()] == [1]


def test_what_fails_together_is_tried_message_by_message_and_only_the_bad_one_dies(
    bench: Callable[..., Bench],
) -> None:
    def chokes(messages: list[Message]) -> list[bool]:
        if any(message.offset == 1 for message in messages):
            raise ValueError("no price")
        return well(messages)

    own = bench(chokes, stop_after=4)
    fill(own.storage, 3)
    own.run()

    assert own.calls == [[0, 1, 2], [0], [1], [2]]
    assert [dead_letter.offset for dead_letter in own.storage.dead()] == [1]
    assert total(own.storage) == (0, 0, 0, 1)


def test_a_stop_finishes_the_call_and_gives_the_rest_back_without_a_try(bench: Callable[..., Bench]) -> None:
    own = bench(well, stop_after=1, batch_size=6)
    fill(own.storage, 9)
    own.run()

    assert own.calls == [[0, 1, 2, 3, 4, 5]]
    [claim] = own.storage.claim("another", 100, 60.0)
    assert (claim.messages[0].offset, claim.tries) == (6, 0)


@contextmanager
def unusable(storage: MemoryStorage, times: int) -> Iterator[None]:
    left, claim = [times], storage.claim

    def failing(*args: object, **kwargs: object) -> object:
        if left[0]:
            left[0] -= 1
            raise StorageUnusable("no room")
        return claim(*args, **kwargs)  # type: ignore[arg-type]

    storage.claim = failing  # type: ignore[method-assign,assignment]
    yield
    storage.claim = claim  # type: ignore[method-assign]


def test_a_storage_that_cannot_be_used_is_tried_again(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kctl_agent.sinker.sinker.RETRY_SECONDS", (0.0,))
    own = bench(well, stop_after=1)
    fill(own.storage, 3)
    with unusable(own.storage, times=3):
        own.run()

    assert own.calls == [[0, 1, 2]]
