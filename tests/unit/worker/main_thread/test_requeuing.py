"""The requeue is simulated in a real thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.lake.dead_letters.requeue import PutBack
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.worker.main_thread.requeuing import POLL_SECONDS, Requeuing
from tests.unit.worker.main_thread.played_stats import PlayedStats


class Played:
    """Returns or raises each given outcome once; then there is nothing to requeue."""

    def __init__(self) -> None:
        self.answers: list[PutBack | BaseException | None] = []
        self.calls = 0
        self.has_session = True
        self.goes_on = threading.Event()
        self.goes_on.set()

    def begin(self) -> Callable[[], PutBack | None] | None:
        return self.put_next if self.has_session else None

    def put_next(self) -> PutBack | None:
        self.calls += 1
        assert self.goes_on.wait(30)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.goes_on.set()


@pytest.fixture
def stats() -> PlayedStats:
    return PlayedStats()


@pytest.fixture
def requeuing(played: Played, stats: Any, tmp_path: Path) -> Iterator[Requeuing]:
    made = Requeuing(LocalFolder(tmp_path), played.begin, stats)
    yield made
    played.goes_on.set()
    made.close(30)


class Log:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "_delta_log"
        self._entries = 0

    def commit(self) -> None:
        self._folder.mkdir(exist_ok=True)
        before = self._folder.stat().st_mtime_ns
        while self._folder.stat().st_mtime_ns == before:  # the kernel's clock advances in ticks
            self._entries += 1
            (self._folder / f"{self._entries}.json").touch()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def turned(requeuing: Requeuing, now: float) -> None:
    """Runs two turns; returns what the first one started."""
    requeuing.turn(now)
    requeuing.close(30)
    requeuing.turn(now)


def test_all_requested_are_requeued(requeuing: Requeuing, played: Played, log: Log, stats: PlayedStats) -> None:
    log.commit()
    played.answers = [PutBack(3, 2, 1)]
    for second in range(5):
        turned(requeuing, 100.0 + second * POLL_SECONDS)

    assert played.calls == 2
    assert stats.events == [
        ("requeued", "3 dead letters requeued, 2 rows stored in the table; 1 message of them could not be read again")
    ]


def test_a_turn_waits_for_nothing_and_begins_nothing_twice(requeuing: Requeuing, played: Played, log: Log) -> None:
    played.goes_on.clear()
    log.commit()
    for second in range(5):
        requeuing.turn(100.0 + second)
        log.commit()

    assert played.calls == 1
    requeuing.close(0.0)


def test_failures_are_retried_less_often(requeuing: Requeuing, played: Played, log: Log, stats: PlayedStats) -> None:
    """Panics too."""
    log.commit()
    played.answers = [*[Panic("index out of bounds")] * 4, ValueError("the price of order 7 is no number")]
    at = 100.0
    while played.calls < 5:
        turned(requeuing, at)
        at += 1.0
    assert at - 1.0 == 100.0 + 1 + 2 + 5 + 10
    why = "dead letters cannot be requeued: the price of order 7 is no number; next try in 30 s"
    assert stats.troubles == {"requeue": (why, None)}

    turned(requeuing, at + 30.0)
    assert stats.troubles == {}


class Panic(BaseException):
    """Like a panic of delta-rs, or `exit()` in a transform."""
