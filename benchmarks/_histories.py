"""Random histories of one partition of which it is known how its consumer was: the same for the same number.

Each is made second by second: what arrives, when a batch begins and commits, what a worker or a coordinator reports of
the reader, and when no broker answered. `truth` is what an alarm is held against. It is unclear right after a change:
a consumer that is dead may be noticed after ten cycles, at least two minutes, and after the limit of a batch where it
may be in one for all that anybody can know; one that is too slow after 25 cycles, at least five minutes; one that is
well again must be so after three, at least two minutes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from random import Random
from typing import NamedTuple

from kctl.status import Owner

__all__ = ["KINDS", "History", "Second", "Truth", "histories"]

KINDS = ("faster", "slower", "dead", "batching", "flapping")
_READERS = ("worker", "client", "chosen")
"""A worker of ours; members of a group of other clients; clients that choose their partitions themselves, which no
coordinator counts."""
_SESSION_SECONDS = 45.0
_BATCH_LIMIT_SECONDS = 600.0


class Truth(StrEnum):
    WELL = "well"
    SLOW = "slow"
    DEAD = "dead"
    UNCLEAR = "unclear"


class Second(NamedTuple):
    at: float
    committed: int
    end: int
    is_commit: bool
    """Of an offset that may be the same as before."""
    is_seen: bool
    """False while no broker answers."""
    owner: Owner
    truth: Truth


@dataclass(frozen=True)
class History:
    number: int
    kind: str
    reader: str
    cycle_seconds: float
    poll_seconds: int
    seconds: list[Second]


def histories(count: int, first: int = 0) -> Iterator[History]:
    """One after another, for each takes a few megabytes."""
    return (_Making(number).history() for number in range(first, first + count))


@dataclass
class _Phase:
    """From `at` on the consumer is in this way."""

    at: float
    truth: Truth
    speed: float
    """Of what arrives on average."""


@dataclass
class _Making:
    number: int
    rng: Random = field(init=False)
    committed: int = 0
    limit: int = 0
    """Up to here the batch in progress reads."""
    end: int = 0
    began_at: float = 0.0
    due_at: float = 0.0
    last_batch: float | None = None
    waiting_since: float | None = None
    blind: list[tuple[float, float]] = field(default_factory=list)
    bursts: list[tuple[float, float]] = field(default_factory=list)

    def history(self) -> History:
        self.rng = rng = Random(f"kctl {self.number}")
        self.kind = KINDS[self.number % len(KINDS)]
        self.reader = rng.choice(_READERS)
        longest = 400 if self.reader == "worker" else 600  # a worker's batch has a limit of 600 s
        self.cycle = rng.uniform(60, longest) if self.kind == "batching" else rng.choice([1, 2, 5, 10, 20, 30, 60])
        if self.kind == "flapping":
            self.cycle = min(self.cycle, 10)
        self.jitter = rng.choice([0.05, 0.2, 0.4])
        self.rate = 10 ** rng.uniform(-1.3, 3)
        if self.kind == "slower":
            self.rate = max(self.rate, 10 / self.cycle)
        self.mode = rng.choice(["gone", "stuck", "repeating"])
        self.noise = rng.choice([0.0, 0.2, 0.5])
        length = max(7200, ceil(20 * self.cycle))
        self.phases = self._phases(length)
        if rng.random() < 0.25:
            self.blind = [(at, at + rng.uniform(15, 180)) for at in (rng.uniform(600, length - 600) for _ in range(2))]
        if self.kind in ("faster", "batching") and rng.random() < 0.4:
            self.bursts = [(at, at + rng.uniform(10, 90)) for at in (rng.uniform(0, length) for _ in range(3))]
        seconds = [self._second(float(at)) for at in range(length)]
        return History(self.number, self.kind, self.reader, self.cycle, rng.choice([1, 2, 5, 10, 30]), seconds)

    def _phases(self, length: int) -> list[_Phase]:
        rng = self.rng
        well = _Phase(0.0, Truth.WELL, rng.uniform(1.5, 4))
        if self.kind in ("faster", "batching"):
            return [well]
        if self.kind == "flapping":
            phases, at = [well], rng.uniform(600, 900)
            while at < length:
                dead = rng.uniform(300, 900)
                phases += [_Phase(at, Truth.DEAD, 0.0), _Phase(at + dead, Truth.WELL, rng.uniform(2, 4))]
                at += dead + rng.uniform(600, 1200)
            return phases
        began = rng.choice([0.0, rng.uniform(0.1, 0.4) * length])
        ill = Truth.SLOW if self.kind == "slower" else Truth.DEAD
        phases = [well] if began else []
        phases.append(_Phase(began, ill, rng.uniform(0.2, 0.8) if ill is Truth.SLOW else 0.0))
        if rng.random() < 0.5:
            phases.append(_Phase(rng.uniform(0.7, 0.8) * length, Truth.WELL, rng.uniform(2, 4)))
        return phases

    def _second(self, at: float) -> Second:
        phase = max((each for each in self.phases if each.at <= at), key=lambda each: each.at)
        is_seen = not any(began <= at < ended for began, ended in self.blind)
        is_commit = False
        if is_seen:
            self._arrive(at)
            is_commit = self._read(at, phase)
        if self.end <= self.committed:
            self.waiting_since = None
        elif self.waiting_since is None or (is_commit and phase.truth is not Truth.DEAD):
            self.waiting_since = at
        return Second(at, self.committed, self.end, is_commit, is_seen, self._owner(at, phase), self._truth(at, phase))

    def _arrive(self, at: float) -> None:
        rng = self.rng
        if at % 30 == 0:
            self.wave = rng.lognormvariate(-(self.noise**2) / 2, self.noise)
        mean = self.rate * self.wave * (8 if any(began <= at < ended for began, ended in self.bursts) else 1)
        if mean > 50:
            self.end += max(round(rng.gauss(mean, mean**0.5)), 0)
            return
        gone = rng.expovariate(mean)
        while gone < 1:
            self.end += 1
            gone += rng.expovariate(mean)

    def _read(self, at: float, phase: _Phase) -> bool:
        """Whether something is committed: what there was when the batch began, as much as the speed allows."""
        if self.reader == "worker" and self.limit == self.committed < self.end:  # it begins as soon as it can
            self._begin(at)
        if at < self.due_at:
            return False
        repeats = phase.truth is Truth.DEAD and self.mode == "repeating" and self.reader != "worker"
        if phase.truth is Truth.DEAD and not repeats:
            return False
        took = at - self.began_at
        if not repeats:
            able = max(int(phase.speed * self.rate * took + self.rng.random()), 1 if phase.speed > 1 else 0)
            done = min(self.limit - self.committed, able)
            self.committed += done
            self.last_batch = took if done else self.last_batch
        self._begin(at)
        return True

    def _begin(self, at: float) -> None:
        self.began_at, self.limit = at, self.end
        self.due_at = at + max(self.cycle * self.rng.uniform(1 - self.jitter, 1 + self.jitter), 1.0)

    def _owner(self, at: float, phase: _Phase) -> Owner:
        is_gone = phase.truth is Truth.DEAD and self.mode == "gone"
        has_session = not is_gone or at - phase.at < _SESSION_SECONDS
        if self.reader == "worker" and not is_gone:
            running = at - self.began_at if self.limit > self.committed else None
            return Owner("worker-0", "running", 0.0, self.last_batch, running)
        if self.reader == "worker":
            return Owner(None, None, 0.0, members=1 if has_session else 0)
        if self.reader == "chosen":
            return Owner(None, None, None)
        return Owner(None, None, None, members=2 if has_session else 0)

    def _truth(self, at: float, phase: _Phase) -> Truth:
        cycle = self.cycle * (1 + self.jitter)
        if any(began <= at < ended + max(120.0, 3 * cycle) for began, ended in self.blind) and phase.truth in (
            Truth.SLOW,
            Truth.DEAD,
        ):
            return Truth.UNCLEAR
        if phase.truth is Truth.WELL:
            backlog_ends = at - phase.at >= max(120.0, 3 * cycle) or phase.at == 0
            in_burst = any(began <= at < ended + max(120.0, 3 * cycle) for began, ended in self.bursts)
            return Truth.WELL if backlog_ends and not in_burst else Truth.UNCLEAR
        if phase.truth is Truth.SLOW:
            return Truth.SLOW if at - phase.at >= max(300.0, 25 * cycle) else Truth.UNCLEAR
        allowed = max(120.0, 10 * cycle)
        if self._may_be_a_batch(phase):
            allowed = max(allowed, _BATCH_LIMIT_SECONDS + 120.0)
        silent = self.waiting_since is not None and at - max(self.waiting_since, phase.at) >= allowed
        return Truth.DEAD if silent else Truth.UNCLEAR

    def _may_be_a_batch(self, phase: _Phase) -> bool:
        """Of a worker that is there; and of clients that were dead before anything was seen, as long as a member is
        there or nobody counts them."""
        if self.reader == "worker":
            return self.mode != "gone"
        return phase.at == 0 and (self.reader == "chosen" or self.mode != "gone")
