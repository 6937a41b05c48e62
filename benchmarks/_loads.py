"""A fleet on a virtual clock, in slots of five seconds: loads, and what scales it. A day takes seconds.

Workers read like kctl's: one batch a slot, its rows by lag, its time fixed + rows * cost. Each number of workers has
the assignment of the group's own assignor, and a change of it interrupts reading for two slots.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, pi, sin
from typing import NamedTuple

import numpy as np

from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Shares, Work
from kctl.config.sections import AdviceSection
from kctl.rows.advice import Advice, Answer
from kctl.rows.columns import Reals, Rows

SLOT_SECONDS = 5.0
FULL_BATCH = 5000
FIXED_SECONDS = 0.5
ROW_SECONDS = 0.0009
CAPACITY = FULL_BATCH / (FIXED_SECONDS + FULL_BATCH * ROW_SECONDS)
"""1,000 messages a second."""
FULL_CALL = 500
CALL_SECONDS = 0.05
HANDLING_SECONDS = 0.0009
PAUSE_SLOTS = 2
_NOISE = 0.05
_READ_SLOTS = 2
"""Slots from one reading by what scales the fleet to the next."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """What happens to a fleet. `rate` returns messages a second over all partitions."""

    name: str
    rate: Callable[[float], float]
    hours: float = 4.0
    weights: tuple[float, ...] = (1.0,) * 30
    workers: int = 4
    sinkers: int = 0
    useful_workers: float = inf
    """More workers than this share what the storage can do."""
    useful_sinkers: float = inf
    blocked: Mapping[tuple[float, float], str] = field(default_factory=dict)
    """From when until when nothing is read, and why: an outage, a restart."""
    unknown: tuple[float, float] = (inf, inf)
    """When the end of the first partition is not known."""
    can_be_met: bool = True
    """Whether some number of workers can meet it."""


def daily(at: float) -> float:
    return 3500 + 2500 * sin(2 * pi * (at / 86_400 - 0.25))


LOADS = (
    Load(name="steady", rate=lambda _: 2500.0),
    Load(name="daily curve", rate=daily, hours=24),
    Load(name="burst", rate=lambda at: 8000.0 if 7200 <= at < 9000 else 1500.0),
    Load(name="restart", rate=lambda _: 2500.0, blocked={(7200, 7320): "worker-0 is starting"}),
    Load(name="1:20 skew", rate=lambda _: 1200.0, weights=(20.0, *(1.0,) * 29)),
    Load(name="hot partition", rate=lambda _: 2500.0, weights=(30.0, *(1.0,) * 29), can_be_met=False),
    Load(name="slow storage", rate=lambda _: 4000.0, useful_workers=2.5, can_be_met=False),
    Load(name="slow handler", rate=lambda _: 2500.0, sinkers=2, useful_sinkers=2.5, can_be_met=False),
    Load(name="few sinkers", rate=lambda _: 2500.0, sinkers=1),
    Load(name="broker outage", rate=lambda _: 2500.0, blocked={(7200, 7800): "the brokers do not answer"}),
    Load(name="unknown ends", rate=lambda _: 2500.0, unknown=(7200, 9000)),
)


class Slot(NamedTuple):
    """One slot of a run."""

    at: float
    rate: float
    lag: float
    worst: float
    """The longest time in seconds that a partition's lag takes to arrive."""
    workers: int
    sinkers: int
    pending: float
    advice: Advice | None


Scaler = Callable[["Fleet"], tuple[int, int]]
"""Returns the numbers of workers and sinkers to run from now on."""


class Fleet:
    def __init__(self, load: Load, assignor: str = "cooperative-sticky", seed: int = 1) -> None:
        self.load, self.at = load, 0.0
        self.keys = tuple(("orders", number) for number in range(len(load.weights)))
        self.end = self.lag = self.rates = np.zeros(len(self.keys))
        self.workers, self.sinkers, self.pending = load.workers, load.sinkers, 0.0
        self.work: dict[str, Work] = {}
        self.handling: dict[str, Work] = {}
        self.blocked = ""
        self._free_at: Reals = np.zeros(load.workers)
        self._weights = np.array(load.weights) / sum(load.weights)
        self._random = np.random.default_rng(seed)
        self._shares, self._paused = Shares(assignor), 0
        self._owner = self._owners()

    def _owners(self) -> Rows:
        self._shares.use(
            self.keys,
            tuple(f"worker-{each}" for each in self._owner) if hasattr(self, "_owner") else (None,) * len(self.keys),
        )
        return self._shares.of_each(self.workers)

    def scale(self, workers: int, sinkers: int) -> None:
        self.sinkers = sinkers
        if workers != self.workers:
            self._free_at = np.append(self._free_at, np.full(max(workers - self.workers, 0), self.at))[:workers]
            self.workers, self._paused = workers, PAUSE_SLOTS
            self._owner = self._owners()
            self.work = {name: each for name, each in self.work.items() if int(name[7:]) < workers}

    def step(self) -> None:
        """Lets one slot pass."""
        load, now = self.load, self.at
        rate = load.rate(now)
        arrived = self._random.poisson(rate * self._weights * SLOT_SECONDS)
        self.rates = rate * self._weights
        self.end, self.lag = self.end + arrived, self.lag + arrived
        self.blocked = next((why for (since, until), why in load.blocked.items() if since <= now < until), "")
        self._paused = max(self._paused - 1, -1)
        if self._paused >= 0:
            self.blocked = self.blocked or "the group is rebalancing"
        if not self.blocked:
            self._read()
        self._handle()
        self.at += SLOT_SECONDS

    def _read(self) -> None:
        waiting = np.bincount(self._owner, self.lag, self.workers)
        slower = max(self.workers / self.load.useful_workers, 1.0)
        fixed, per_row = FIXED_SECONDS * slower, ROW_SECONDS * slower
        rows = np.where(self._free_at < self.at + SLOT_SECONDS, np.floor(np.minimum(waiting, FULL_BATCH)), 0.0)
        seconds = (fixed + per_row * rows) * self._random.lognormal(0.0, _NOISE, len(rows))
        self._free_at = np.where(rows > 0, np.maximum(self._free_at, self.at) + seconds, self._free_at)
        share = np.divide(rows, waiting, out=np.zeros(len(rows)), where=waiting > 0)
        self.lag = self.lag - self.lag * share[self._owner]
        self.lag[self.lag < 1e-6] = 0.0
        self.pending += rows.sum() if self.sinkers else 0.0
        for number, (done, took) in enumerate(zip(rows.tolist(), seconds.tolist(), strict=True)):
            before = self.work.get(f"worker-{number}", Work(0, 0, 0.0))
            if done:
                self.work[f"worker-{number}"] = Work(before.batches + 1, before.rows + int(done), before.seconds + took)

    def _handle(self) -> None:
        slower = max(self.sinkers / self.load.useful_sinkers, 1.0) if self.sinkers else 1.0
        for number in range(self.sinkers):
            rows = min(
                self.pending / (self.sinkers - number),
                SLOT_SECONDS * FULL_CALL / (CALL_SECONDS + FULL_CALL * HANDLING_SECONDS) / slower,
            )
            calls = ceil(rows / FULL_CALL)
            took = slower * (CALL_SECONDS * calls + HANDLING_SECONDS * rows) * self._random.lognormal(0.0, _NOISE)
            before = self.handling.get(f"sinker-{number}", Work(0, 0, 0.0))
            if calls:
                self.handling[f"sinker-{number}"] = Work(
                    before.batches + calls, before.rows + int(rows), before.seconds + took
                )
            self.pending -= rows

    def sample(self) -> Sample:
        """What a master would see of it now."""
        end = self.end.copy()
        if self.load.unknown[0] <= self.at < self.load.unknown[1]:
            end[0] = np.nan
        return Sample(
            at=self.at, unix=self.at, keys=self.keys, end=end, lag=np.where(np.isnan(end), np.nan, self.lag),
            owners=tuple(f"worker-{each}" for each in self._owner), workers=self.workers, work=dict(self.work),
            full_batch=FULL_BATCH, cycle_seconds=2 * SLOT_SECONDS, sinkers=self.sinkers, handling=dict(self.handling),
            full_call=FULL_CALL, pending=self.pending if self.sinkers else None, blocked=self.blocked,
        )  # fmt: skip


class Advised:
    """Follows the advice at once."""

    def __init__(self, rules: AdviceSection | None = None, assignor: str = "cooperative-sticky") -> None:
        self.adviser = Adviser(rules or AdviceSection(), assignor)
        self.advice: Advice | None = None

    def __call__(self, fleet: Fleet) -> tuple[int, int]:
        self.advice = advice = self.adviser.seen(fleet.sample())
        if advice.answer is Answer.UNKNOWN:
            return fleet.workers, fleet.sinkers
        return advice.workers or fleet.workers, advice.sinkers or fleet.sinkers


def run(
    load: Load, scaler: Callable[[Fleet], tuple[int, int]], seed: int = 1, assignor: str = "cooperative-sticky"
) -> Iterator[Slot]:
    fleet = Fleet(load, assignor, seed)
    for number in range(round(load.hours * 3600 / SLOT_SECONDS)):
        fleet.step()
        wanted = scaler(fleet) if number % _READ_SLOTS == 0 else (fleet.workers, fleet.sinkers)
        worst = float(np.max(fleet.lag / np.maximum(fleet.rates, 1e-9)))
        totals = fleet.at, float(fleet.rates.sum()), float(fleet.lag.sum()), worst
        yield Slot(*totals, fleet.workers, fleet.sinkers, fleet.pending, getattr(scaler, "advice", None))
        fleet.scale(*wanted)
