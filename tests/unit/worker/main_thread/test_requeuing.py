"""The requeue is simulated in a real thread."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.lake.dead_letters.requeue import PutBack
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.worker.main_thread.requeuing import POLL_SECONDS, Requeuing
from tests.unit.worker.main_thread.played_stats import PlayedStats


class Bench:
    """Returns or raises each given outcome once. After that, it requeues nothing."""

    def __init__(self, folder: Path) -> None:
        self.answers: list[PutBack | BaseException] = []
        self.calls = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        stats: Any = PlayedStats()
        self.troubles, self.events = stats.troubles, stats.events
        self.requeuing = Requeuing(LocalFolder(folder), lambda: self._put_next, stats)
        self._log = folder / "_delta_log"
        self.commit()

    def _put_next(self) -> PutBack | None:
        self.calls += 1
        assert self.goes_on.wait(30)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def commit(self) -> None:
        self._log.mkdir(exist_ok=True)
        before = self._log.stat().st_mtime_ns
        while self._log.stat().st_mtime_ns == before:  # the kernel's clock advances in ticks
            (self._log / f"{len(list(self._log.iterdir()))}.json").touch()

    def turned(self, now: float) -> None:
        self.requeuing.turn(now)
        self.requeuing.close(30)
        self.requeuing.turn(now)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.goes_on.set()
    made.requeuing.close(30)


def test_all_requested_are_requeued(bench: Bench) -> None:
    bench.answers = [PutBack(3, 2, 1)]
    for second in range(5):
        bench.turned(100.0 + second * POLL_SECONDS)

    assert bench.calls == 2
    assert bench.events == [
        ("requeued", "3 dead letters requeued, 2 rows stored in the table; 1 message of them could not be read again")
    ]


def test_a_turn_waits_for_nothing_and_begins_nothing_twice(bench: Bench) -> None:
    bench.goes_on.clear()
    for second in range(5):
        bench.requeuing.turn(100.0 + second)
        bench.commit()

    assert bench.calls == 1
    bench.requeuing.close(0.0)


def test_failures_are_retried_less_often(bench: Bench) -> None:
    """Panics of delta-rs and `exit()` in a transform count too."""
    bench.answers = [*[BaseException("index out of bounds")] * 4, ValueError("the price of order 7 is no number")]
    at = 100.0
    while bench.calls < 5:
        bench.turned(at)
        at += 1.0
    assert at - 1.0 == 100.0 + 1 + 2 + 5 + 10
    why = "dead letters cannot be requeued: the price of order 7 is no number; next try in 30 s"
    assert bench.troubles == {"requeue": (why, None)}

    bench.turned(at + 30.0)
    assert bench.troubles == {}
