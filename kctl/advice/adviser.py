"""Computes advice for a fleet or a group from periodic samples of its work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kctl.advice.policy import Expectation, Policy
from kctl.advice.window import Arrivals, BatchWindow, Capacity, Shares, Work, capacity
from kctl.config.sections import AdviceSection
from kctl.rows.advice import Advice, Answer, HotPartition, Outcome
from kctl.rows.columns import Partition, Reals

_KNOWN = 1 / 15  # arrivals must be known for this part of the window: one minute by default
_LEAST_CYCLE_SECONDS = 2.0
_GAIN = 0.5  # more processes have helped if they brought at least this share of the expected gain
_RISE = 1.2  # the smallest rise whose gain is larger than the errors of its measurement
_BATCHES_OF_EACH = 5  # a rise is judged after this many batches of each process on average
_TOLERANCE = 0.1
"""A number that is too small by at most this share stays, so that a load near the limit causes no change."""
_MOST_NUMBERS_TRIED = 200
_NAMED = 10
_ROUNDING = 1e-9
_NORMAL_CYCLES = 2.0
"""After a change that had the expected effect, at most this many cycles of messages wait."""
_URGENT = frozenset({Answer.WORKERS, Answer.STORAGE, Answer.HANDLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The observations of a fleet at one moment. NaN means unknown."""

    at: float  # seconds of a monotonic clock
    unix: float = 0.0
    keys: tuple[Partition, ...]
    end: Reals
    lag: Reals
    owners: tuple[str | None, ...]
    workers: int
    work: Mapping[str, Work]
    full_batch: int
    cycle_seconds: float
    """The usual time from one commit to the next. Messages that arrive in that time are not backlog."""
    sinkers: int = 0
    handling: Mapping[str, Work] = field(default_factory=dict)
    full_call: int = 1
    pending: float | None = None
    """Messages in the storage; None: unknown, or the storage does not queue messages."""
    workers_per_host: int | None = None  # None: the fleet runs on one host
    bound_by: Answer = Answer.STORAGE  # the answer if more workers did not store more messages
    blocked: str = ""  # why no advice can be given at present
    full: str = ""  # why the storage takes no batch
    failing: str = ""  # why the handler handles no messages
    idle: str = ""  # why the capacity of a worker is unknown, if the cause is not in its batches


class _Finding(NamedTuple):
    answer: Answer
    reason: str = ""
    advised: int | None = None
    needed: int | None = None


class _Need(NamedTuple):
    number: int  # the smallest number of workers at which the most loaded one can meet its load
    load: float  # the load of the most loaded worker at present; 1 is the capacity of one worker
    load_then: float  # the load of the most loaded worker if there were `number` workers
    hot: tuple[HotPartition, ...]


class _Rise(NamedTuple):
    before: int
    after: int
    total: float | None  # the capacity of all processes together before the rise
    useless_until: float = -inf
    """If the rise was useless and then undone, it counts as useless for an hour."""


class _Kind:
    def __init__(self, rules: AdviceSection) -> None:
        self.policy, self.expectation = Policy(rules), Expectation(rules)
        self._batches, self._undone_seconds = BatchWindow(rules.window_seconds), rules.down_after_seconds
        self._at, self._count, self._full = 0.0, 0, 1
        self._rise: _Rise | None = None

    def add(self, at: float, count: int, work: Mapping[str, Work], full: int, *, is_interrupted: bool) -> None:
        if count < self._count:
            useless = self.useless
            self._rise = None if useless is None else useless._replace(useless_until=at + self._undone_seconds)
        elif count > self._count:
            each, last = self._now.per_second, self._rise
            if last is not None and (each is None or self._count < _RISE * last.before):
                self._rise = last._replace(after=max(count, last.after))
            else:
                self._rise = _Rise(self._count, count, None if each is None else each * self._count)
        self._at, self._count, self._full = at, count, full
        self._batches.add(at, count, work, is_interrupted=is_interrupted)

    @property
    def _now(self) -> Capacity:
        return capacity(self._batches.moments(self._count), self._full)

    @property
    def capacity(self) -> Capacity:
        now = self._now
        # Batches that ran with another number of processes count only if the capacity is unknown without them.
        return now if now.per_second is not None else capacity(self._batches.moments(), self._full)

    @property
    def useless(self) -> _Rise | None:
        last, count, each = self._rise, self._count, self._now.per_second
        if last is None or (self._at < last.useless_until and last.before <= count < last.after):
            return last
        is_early = self._batches.moments(count)[0] < _BATCHES_OF_EACH * count
        if is_early or last.total is None or each is None or count < _RISE * last.before:
            return None
        promised = last.total * (1 + _GAIN * (count / last.before - 1))
        return last if each * count < promised else None


class Adviser:
    def __init__(self, rules: AdviceSection, assignor: str) -> None:
        self._rules = rules
        self._shares = Shares(assignor)
        self._arrivals = Arrivals(rules.window_seconds)
        self._workers, self._sinkers = _Kind(rules), _Kind(rules)
        self._last = Advice.unknown("nothing was observed yet", 0)

    def seen(self, sample: Sample) -> Advice:
        rates, seconds = self._arrivals.per_second(sample.at, sample.keys, sample.end)
        is_interrupted = bool(sample.blocked)
        self._workers.add(sample.at, sample.workers, sample.work, sample.full_batch, is_interrupted=is_interrupted)
        self._sinkers.add(sample.at, sample.sinkers, sample.handling, sample.full_call, is_interrupted=is_interrupted)
        blocked = sample.blocked or _unknown(sample, rates, seconds, self._rules.window_seconds * _KNOWN)
        found = self._blocked(sample, blocked) if blocked else self._advice(sample, rates)
        since = self._last.since if self._last.asks_as(found) else sample.unix
        outcome = self._outcome(sample, rates, found) or self._last.outcome
        self._last = replace(found, since=since, outcome=outcome)
        return self._last

    def _blocked(self, sample: Sample, why: str) -> Advice:
        for kind in (self._workers, self._sinkers):
            kind.policy.interrupted()
        return Advice.unknown(why, sample.workers, sample.sinkers)

    def _advice(self, sample: Sample, rates: Reals) -> Advice:
        each, of_sinkers = self._workers.capacity, self._for_sinkers(sample, rates)
        need = None if each.per_second is None else self._need(sample, rates, each.per_second)
        of_workers = self._for_workers(sample, rates, each, need)
        found = _first(sample, of_workers, of_sinkers)
        return Advice(
            found.answer,
            found.reason,
            sample.workers,
            sample.sinkers,
            workers=of_workers.advised,
            needed=of_workers.needed,
            sinkers=of_sinkers.advised,
            needed_sinkers=of_sinkers.needed,
            hosts=_hosts(of_workers.advised, sample.workers_per_host),
            hot=() if need is None else need.hot,
            arrivals_per_second=float(rates.sum()),
            capacity_per_second=each.per_second,
            load=None if need is None else need.load,
        )

    def _for_workers(self, sample: Sample, rates: Reals, each: Capacity, need: _Need | None) -> _Finding:
        kind, current = self._workers, sample.workers
        if need is None or each.per_second is None:
            kind.policy.interrupted()
            return _Finding(Answer.UNKNOWN, f"the capacity of a worker is unknown: {sample.idle or each.reason}")
        if sample.full:
            kind.policy.interrupted()
            return _Finding(Answer.STORAGE, sample.full, current, current)
        advised = kind.policy.advised(sample.at, need.number, current)
        useless = kind.useless
        if need.number > current and useless is not None:
            why = f"{useless.after} workers do hardly more than {useless.before} did"
            return _Finding(sample.bound_by, why, current, need.number)
        facts = f"{rates.sum():,.0f} messages/s arrive, a worker can do {each.per_second:,.0f}/s"
        now = f"the largest load is {need.load:.2f} with {current}"
        if advised != current:
            step = "" if advised == need.number else f"; {advised} is a step towards {need.number}"
            then = f"{need.load_then:.2f} with {need.number}{step}"
            return _Finding(Answer.WORKERS, f"{facts}; {now}, {then}", advised, need.number)
        if need.hot:
            topic, partition, workers = need.hot[0].topic, need.hot[0].partition, need.hot[0].workers
            alone = f"{topic}-{partition} alone needs {workers:.1f} workers, so more workers will not help"
            cures = "add partitions, choose another key, or make the transform faster"
            return _Finding(Answer.HOT, f"{alone}: {cures}", current, need.number)
        later = "" if need.number == current else f"; {need.number} would fit better, but not for long enough yet"
        return _Finding(Answer.KEEP, f"{facts}; {now}{later}", current, need.number)

    def _need(self, sample: Sample, rates: Reals, each: float) -> _Need:
        rules, current = self._rules, sample.workers
        self._shares.use(sample.keys, sample.owners)
        steady = rates / rules.utilisation
        is_hot = steady > each
        backlog = np.maximum(sample.lag - rates * _cycle(sample), 0.0)
        worker_of = self._shares.of_each(max(current, 1))
        backlog[np.isin(worker_of, worker_of[is_hot])] = 0.0  # it remains until the partition is no longer hot
        needs = steady + backlog / rules.catch_up_seconds + rates * rules.pause_seconds / rules.catch_up_seconds
        # A need that no number of workers can meet in time does not raise the number.
        loads = np.where(needs <= each, needs, np.where(is_hot, 0.0, steady)) / each
        least = max(ceil(np.minimum(needs, each).sum() / each - _ROUNDING), 1)
        load = self._shares.largest(max(current, 1), loads)
        numbers = islice(range(least, len(sample.keys) + 1), _MOST_NUMBERS_TRIED)
        fitting = ((n, then) for n in numbers if (then := self._shares.largest(n, loads)) <= 1 + _ROUNDING)
        number, then = next(fitting, (current, load))
        is_enough = load <= 1 + _TOLERANCE and least <= ceil(current * (1 + _TOLERANCE))
        is_same_share = abs(then - load) <= _ROUNDING * max(load, 1.0)
        if (is_same_share and least <= current <= len(sample.keys)) or (number > current and is_enough):
            number = current
        hottest = sorted(np.flatnonzero(is_hot).tolist(), key=lambda row: -float(steady[row]))[:_NAMED]
        hot = tuple(HotPartition(*sample.keys[row], float(steady[row] / each)) for row in hottest)
        return _Need(number, load, then, hot)

    def _for_sinkers(self, sample: Sample, rates: Reals) -> _Finding:
        kind, current, rules = self._sinkers, sample.sinkers, self._rules
        if not current:
            return _Finding(Answer.KEEP)
        each = kind.capacity.per_second
        if each is None or sample.pending is None:
            kind.policy.interrupted()
            return _Finding(Answer.KEEP)
        arrivals = float(rates.sum())
        backlog = max(sample.pending - arrivals * _cycle(sample), 0.0)
        needed = max(ceil((arrivals / rules.utilisation + backlog / rules.catch_up_seconds) / each - _ROUNDING), 1)
        advised = kind.policy.advised(sample.at, needed, current)
        useless = kind.useless
        if needed > current and useless is not None:
            why = f"{useless.after} sinkers handle hardly more than {useless.before} did"
            return _Finding(Answer.HANDLER, why, current, needed)
        why = f"{arrivals:,.0f} messages/s arrive, {sample.pending:,.0f} wait, a sinker can handle {each:,.0f}/s"
        return _Finding(Answer.KEEP if advised == current else Answer.SINKERS, why, advised, needed)

    def _outcome(self, sample: Sample, rates: Reals, found: Advice) -> Outcome | None:
        allowed = _NORMAL_CYCLES * _cycle(sample) * float(np.nansum(rates)) + len(sample.keys)
        workers = (None if found.hot else found.workers), found.needed
        sinkers = found.sinkers, found.needed_sinkers
        lag = float(np.nansum(sample.lag))
        is_known, ended = found.answer is not Answer.UNKNOWN, None
        for what, kind, current, advised, waiting in (
            ("workers", self._workers, sample.workers, workers, lag),
            ("sinkers", self._sinkers, sample.sinkers, sinkers, sample.pending),
        ):
            outcome = kind.expectation.outcome(sample.at, current, *advised, waiting if is_known else None, allowed)
            if outcome is not None:
                number = 1 if self._last.outcome is None else self._last.outcome.number + 1
                ended = Outcome(number, f"{what} {outcome[1]}", outcome[0])
        return ended


def _unknown(sample: Sample, rates: Reals, seconds: float, least: float) -> str:
    if not sample.keys:
        return "no partition is known"
    if seconds < least:
        return f"arrivals have been observed for {seconds:.0f} of {least:.0f} s"
    missing = np.flatnonzero(np.isnan(rates) | np.isnan(sample.lag))
    return "the lag of {}-{} is not known".format(*sample.keys[missing[0]]) if len(missing) else ""


def _first(sample: Sample, of_workers: _Finding, of_sinkers: _Finding) -> _Finding:
    if sample.failing:
        return _Finding(Answer.HANDLER, sample.failing)
    if of_sinkers.answer is not Answer.KEEP and (sample.full or of_workers.answer not in _URGENT):
        return of_sinkers
    return of_workers


def _cycle(sample: Sample) -> float:
    return max(sample.cycle_seconds, _LEAST_CYCLE_SECONDS)


def _hosts(workers: int | None, per_host: int | None) -> int | None:
    return None if workers is None or per_host is None else max(ceil(workers / max(per_host, 1)), 1)
