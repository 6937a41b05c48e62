"""Each rule of the advice on samples without noise. A mutation of each rule must fail its check."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Work
from kctl.config.sections import AdviceSection
from kctl.rows.advice import Advice, Answer

CAPACITY = 1000.0
FULL = 5000
STEP = 10.0
HOUR = 3600.0
Make = Callable[..., Any]  # `Adviser`, or the same class of a mutated module
MUTATIONS: dict[Callable[[Make], None], list[tuple[str, str, str]]] = {}  # module, text, replacement


def mutation(*change: str) -> Callable[[Callable[[Make], None]], Callable[[Make], None]]:
    def register(check: Callable[[Make], None]) -> Callable[[Make], None]:
        MUTATIONS.setdefault(check, []).append(change)  # type: ignore[arg-type]
        return check

    return register


class Watched:
    """A fleet whose workers handle 1,000 messages a second each, in batches of 1,000 and 4,000 rows."""

    def __init__(
        self,
        make: Make,
        rates: Sequence[float],
        workers: int,
        assignor: str = "roundrobin",
        topics: int = 1,
        **rules: float,
    ) -> None:
        self.adviser = make(AdviceSection(**rules), assignor)
        self.rates = np.array(rates, np.float64)
        per_topic = len(rates) // topics
        keys = tuple((f"t{topic}", number) for topic in range(topics) for number in range(per_topic))
        owners = tuple(f"worker-{place % workers}" for place in range(len(keys)))
        self.sample = Sample(
            at=0.0, keys=keys, end=np.zeros(len(keys)), lag=np.zeros(len(keys)), owners=owners, workers=workers,
            work={}, full_batch=FULL, cycle_seconds=10.0,
        )  # fmt: skip
        self.slower = 1.0
        self.rows: tuple[int, int] = (1000, 4000)
        self.fixed_seconds = 0.5

    def watch(self, seconds: float = STEP, **changes: Any) -> Advice:
        self.sample = replace(self.sample, **changes)
        for _ in range(round(seconds / STEP)):
            now, turn = self.sample, round(self.sample.at / STEP)
            rows = self.rows[turn % 2]
            cost = (FULL / CAPACITY - self.fixed_seconds) / FULL
            took = self.slower * (self.fixed_seconds + rows * cost)
            work = {
                f"worker-{each}": Work(old.batches + 1, old.rows + rows, old.seconds + took)
                for each in range(now.workers)
                for old in [now.work.get(f"worker-{each}", Work(0, 0, 0.0))]
            }
            end = now.end + self.rates * STEP
            self.sample = replace(now, at=now.at + STEP, unix=now.at + STEP, end=end, work=work)
            self.advice: Advice = self.adviser.seen(self.sample)
        return self.advice

    def scaled(self, workers: int, seconds: float = STEP, **changes: Any) -> Advice:
        owners = tuple(f"worker-{place % workers}" for place in range(len(self.sample.keys)))
        work = {name: each for name, each in self.sample.work.items() if int(name[7:]) < workers}
        return self.watch(seconds, workers=workers, owners=owners, work=work, **changes)


def even(total: float, partitions: int = 32) -> list[float]:
    return [total / partitions] * partitions


@mutation("adviser", "sample.lag - rates * _cycle(sample)", "sample.lag")
@mutation("adviser", "steady + backlog / rules", "steady + 0 * backlog / rules")
@mutation("adviser", "steady = rates / rules.utilisation", "steady = rates")
@mutation("adviser", " + rates * rules.pause_seconds", " + 0 * rates * rules.pause_seconds")
def a_backlog_beyond_a_cycle_is_work_of_the_catch_up_time(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    without = fleet.watch(120, lag=fleet.rates * 10.0).load
    found = fleet.watch(STEP, lag=fleet.rates * 40.0).load

    assert without == pytest.approx(600 * (1 / 0.7 + 10 / 300) / CAPACITY, rel=1e-3), "one cycle of messages is none"
    assert found == pytest.approx((without or 0) + 600 * 30 / 300 / CAPACITY, rel=1e-3)


@mutation("window", "_STATELESS.get(self._assignor,", "_STATELESS.get('roundrobin',")
def the_assignor_of_the_group_decides_who_gets_what(make: Make) -> None:
    rates = [500.0, 500.0]

    assert Watched(make, rates, 1, "roundrobin", topics=2).watch(120).needed == 2
    assert Watched(make, rates, 1, "range", topics=2).watch(120).needed == 1, "range gives both to the first worker"


@mutation("adviser", "(is_same_share and", "(False and")
@mutation("adviser", "<= 1 + _ROUNDING)", "<= 99)")
def the_number_changes_only_with_the_largest_share(make: Make) -> None:
    found = Watched(make, even(6400, 64), 12).watch(120)

    assert found.needed == 12, "11 workers have six of 64 partitions at most, as 12 have"


@mutation("adviser", "load <= 1 + _TOLERANCE", "load <= 1")
def a_load_on_the_edge_changes_nothing(make: Make) -> None:
    over = Watched(make, even(4 * 1000 * 0.7), 4).watch(600)

    assert 1.0 < (over.load or 0) < 1.1
    assert (over.answer, over.needed) == (Answer.KEEP, 4)


@mutation("adviser", "is_hot = steady > each", "is_hot = steady > 1e9")
@mutation("adviser", "backlog[np.isin(worker_of, worker_of[is_hot])] = 0.0", "pass")
def a_hot_partition_is_named_and_moves_nothing(make: Make) -> None:
    fleet = Watched(make, [1400.0, *[20.0] * 15], 2)
    lag = np.array([2e6, *[100_000.0] * 15])
    found = fleet.watch(600, lag=np.where(np.arange(16) % 2, 0.0, lag))

    assert (found.answer, found.workers) == (Answer.HOT, 2)
    assert [(each.topic, each.partition, round(each.workers, 1)) for each in found.hot] == [("t0", 0, 2.0)]


@mutation("policy", "min(self._since(at - rules.up_after_seconds * _RECENT))", "needed")
@mutation("policy", "min(up, max(ceil(current * rules.max_up), current + 1))", "up")
def a_rise_is_the_least_of_three_minutes_and_at_most_doubles(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.watch(600, lag=fleet.rates * 30)
    fleet.watch(100, lag=fleet.rates * 1000)
    found = fleet.watch(90, lag=fleet.rates * 160)

    assert (found.answer, found.workers) == (Answer.WORKERS, 6)
    growing = Watched(make, even(2400), 4)
    growing.watch(600, lag=growing.rates * 160)
    assert growing.scaled(6, 600).workers == 6
    growing.watch(170, lag=growing.rates * 400)
    assert growing.watch(20, lag=growing.rates * 1000).workers == 8, "the least of the last minute"
    again = Watched(make, even(2400), 4)
    again.watch(120)
    assert again.watch(600, lag=again.rates * 1000).workers == 8


@mutation("policy", "at - self._began_at >= rules.down_after_seconds", "True")
@mutation("policy", "max(down, min(ceil(current * (1 - rules.max_down)), current - 1))", "down")
@mutation("policy", "if at - self._changed_at < rules.gap_seconds:", "if False:")
def fewer_are_advised_after_an_hour_and_by_steps(make: Make) -> None:
    fleet = Watched(make, even(700), 8)

    assert fleet.watch(HOUR - 100).answer is Answer.KEEP
    assert fleet.watch(200).workers == 5, "at most 40 % less"
    assert fleet.scaled(5, 290).answer is Answer.KEEP, "five minutes between two changes"
    assert fleet.watch(30).workers == 3


@mutation("policy", "max(self._since(at - rules.down_after_seconds))", "needed")
@mutation("window", "while len(self._seen) > 1 and", "while False and")
def the_largest_number_of_an_hour_stays(make: Make) -> None:
    fleet = Watched(make, even(700), 8, window_seconds=60)
    fleet.watch(HOUR)
    fleet.rates = fleet.rates * 4000 / 700
    fleet.watch(600)
    fleet.rates = fleet.rates * 700 / 4000

    assert fleet.watch(1800).workers == 7


@mutation("policy", "at - self._steady_at >= rules.up_after_seconds", "True")
@mutation("policy", "\n        self._steady_at = inf", "\n        pass")
@mutation("policy", "min(self._since(at - rules.up_after_seconds)),", "needed,")
def an_interruption_begins_the_three_minutes_again(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.watch(300)
    fleet.watch(150, lag=fleet.rates * 200)

    assert fleet.watch(10, blocked="the group is rebalancing").reason == "the group is rebalancing"
    assert fleet.watch(60, blocked="").answer is Answer.KEEP
    assert fleet.watch(180).answer is Answer.WORKERS


@mutation("window", "return Capacity(full_batch / full)", "return Capacity(rows / seconds)")
@mutation("window", "error > _MOST_ERROR * full", "False")
def a_full_batch_is_extrapolated_and_unknown_if_batches_are_even(make: Make) -> None:
    assert Watched(make, even(2400), 4).watch(120).capacity_per_second == pytest.approx(CAPACITY, rel=1e-3)
    even_batches = Watched(make, even(2400), 4)
    even_batches.rows = 1000, 1001
    even_batches.fixed_seconds = 0.5
    noise = iter([1.0, 1.2, 0.8, 1.1] * 100)

    found = even_batches.watch(60)
    for _ in range(12):
        even_batches.slower = next(noise)
        found = even_batches.watch(STEP)

    assert found.answer is Answer.UNKNOWN
    assert "the time of a full batch is unknown" in found.reason


@mutation("window", "if rows >= _FULL * full_batch:", "if False:")
def full_batches_need_no_variation(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.rows = FULL, FULL

    assert fleet.watch(120).capacity_per_second == pytest.approx(CAPACITY)


@mutation("adviser", "last if each * count < promised else None", "None")
@mutation("adviser", "last if each * count < promised else None", "last")
@mutation("adviser", "_BATCHES_OF_EACH = 5", "_BATCHES_OF_EACH = 0")
@mutation("window", "at < self._settled_at or", "")
def more_workers_that_do_no_more_are_not_followed_by_more(make: Make) -> None:
    fleet = Watched(make, even(6000), 4)
    assert fleet.watch(300, lag=fleet.rates * 30).answer is Answer.WORKERS
    fleet.slower = 2.0

    assert fleet.scaled(8, 100).answer is not Answer.STORAGE, "five batches of each worker do not count yet"
    assert fleet.watch(500).answer is Answer.STORAGE
    assert fleet.advice.workers == 8
    fleet.slower = 1.0
    assert fleet.watch(1200).answer is not Answer.STORAGE, "the storage is as fast as before"


@mutation("adviser", "None if useless is None else useless._replace", "None and useless._replace")
@mutation("adviser", "at + self._undone_seconds", "inf")
def a_useless_rise_that_was_undone_is_not_advised_for_an_hour(make: Make) -> None:
    fleet = Watched(make, even(6000), 4)
    fleet.watch(300, lag=fleet.rates * 30)
    fleet.slower = 2.0
    assert fleet.scaled(8, 600).answer is Answer.STORAGE
    fleet.slower = 1.0

    found = fleet.scaled(4, HOUR - STEP)

    assert (found.answer, found.workers) == (Answer.STORAGE, 4)
    assert found.reason == "8 workers do hardly more than 4 did"
    assert fleet.watch(300).answer is Answer.WORKERS


@mutation("adviser", "(each is None or self._count < _RISE * last.before)", "self._count < _RISE * last.before")
def a_rise_before_the_last_one_was_judged_is_judged_with_it(make: Make) -> None:
    fleet = Watched(make, even(6000), 4)
    fleet.watch(300, lag=fleet.rates * 30)
    fleet.scaled(8, 30)
    fleet.slower = 4.0

    found = fleet.scaled(16, 600)

    assert (found.answer, found.reason) == (Answer.STORAGE, "16 workers do hardly more than 4 did")


@mutation("adviser", "_Finding(sample.bound_by,", "_Finding(Answer.STORAGE,")
def a_handler_inside_the_batch_is_named_if_more_workers_do_no_more(make: Make) -> None:
    fleet = Watched(make, even(6000), 4)
    fleet.watch(300, lag=fleet.rates * 30, bound_by=Answer.HANDLER)
    fleet.slower = 2.0

    assert fleet.scaled(8, 600).answer is Answer.HANDLER


@mutation("window", "_COLD_BATCHES = 2", "_COLD_BATCHES = 1")
@mutation("window", "if is_interrupted or count", "if count")
@mutation("adviser", "is_interrupted = bool(sample.blocked)", "is_interrupted = False")
def the_first_two_batches_after_an_interruption_do_not_count(make: Make) -> None:
    fleet = Watched(make, even(2400), 4, window_seconds=60)
    fleet.watch(120)
    fleet.slower = 9.0
    fleet.watch(STEP, blocked="worker-0 waits for the engine")
    fleet.watch(2 * STEP, blocked="")
    fleet.slower = 1.0

    assert fleet.watch(20).capacity_per_second == pytest.approx(CAPACITY, rel=1e-3)


@mutation("window", " or batches < 0:", ":")
@mutation("window", "_COLD_BATCHES = 2", "_COLD_BATCHES = 0")
def a_restarted_worker_counts_from_then_on(make: Make) -> None:
    fleet = Watched(make, even(600), 1, window_seconds=120)
    fleet.watch(120, work={"worker-0": Work(1000, 2_000_000, 2500.0)})
    fleet.slower = 9.0
    fleet.watch(2 * STEP, work={"worker-0": Work(0, 0, 0.0)})
    fleet.slower = 1.0

    assert fleet.watch(50).capacity_per_second == pytest.approx(CAPACITY, rel=1e-3), "its first batches are slow"
    assert fleet.watch(70).capacity_per_second == pytest.approx(CAPACITY, rel=1e-3), "its later batches count"


@mutation("window", "while self._buckets and", "while False and")
def batches_are_those_of_the_window(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.slower = 2.0
    fleet.watch(1800)
    fleet.slower = 1.0

    assert fleet.watch(930).capacity_per_second == pytest.approx(CAPACITY, rel=1e-3)


@mutation("adviser", "np.isnan(rates) | np.isnan(sample.lag)", "np.isnan(rates)")
def what_is_not_known_gives_no_advice(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    assert "observed for" in fleet.watch(50).reason
    fleet.watch(60)
    lag = np.zeros(32)
    lag[3] = np.nan

    found = fleet.watch(STEP, lag=lag)

    assert (found.answer, found.workers, found.reason) == (Answer.UNKNOWN, None, "the lag of t0-3 is not known")


@mutation("adviser", "if sample.full:", "if False:")
@mutation("adviser", "if sample.failing:", "if False:")
def a_full_storage_or_a_failing_handler_needs_no_workers(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.watch(120)

    full = fleet.watch(600, lag=fleet.rates * 1000, full="the disk is full")
    failing = fleet.watch(STEP, full="", failing="sinker-0 handles nothing")

    assert (full.answer, full.reason, full.workers) == (Answer.STORAGE, "the disk is full", 4)
    assert (failing.answer, failing.reason) == (Answer.HANDLER, "sinker-0 handles nothing")


@mutation("policy", "is_met = at - change.at, waiting <= allowed", "is_met = at - change.at, True")
@mutation("policy", "self._change = change and change._replace(at=at)", "pass")
def a_change_is_held_against_what_was_expected(make: Make) -> None:
    fleet = Watched(make, even(4000, 30), 4)
    assert fleet.watch(300, lag=fleet.rates * 21).workers == fleet.advice.needed == 6
    fleet.scaled(6, 60)
    assert fleet.advice.outcome is None
    met = fleet.watch(60, lag=fleet.rates * 5).outcome
    again = Watched(make, even(4000, 30), 4)
    again.watch(300, lag=again.rates * 21)
    again.scaled(6, 600, lag=again.rates * 90, blocked="worker-5 is starting")
    assert again.watch(300, blocked="").outcome is None, "the time of the start does not count"
    missed = again.watch(60).outcome

    assert met is not None
    assert (met.is_met, "workers 4 -> 6 worked as expected" in met.text) == (True, True)
    assert missed is not None
    assert (missed.is_met, "workers 4 -> 6 did not work as expected" in missed.text) == (False, True)


@mutation("policy", "if not is_last:", "if False:")
def a_step_promises_nothing(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    fleet.watch(120)
    assert fleet.watch(600, lag=fleet.rates * 1000).workers == 8

    assert fleet.scaled(8, 600).outcome is None


@mutation("policy", "not change.is_step or needed == current", "not change.is_step")
def the_last_step_is_judged_although_more_was_needed_when_it_was_advised(make: Make) -> None:
    fleet = Watched(make, even(4000, 30), 4)
    fleet.watch(280, lag=fleet.rates * 21)
    found = fleet.watch(20, lag=fleet.rates * 60)
    assert (found.workers, found.needed) == (6, 8)

    found = fleet.scaled(6, 120, lag=fleet.rates * 5)

    assert found.outcome is not None
    assert (found.needed, found.outcome.is_met) == (6, True)


def with_sinkers(fleet: Watched, sinkers: int, pending: float, seconds: float = 400, slower: float = 1.0) -> Advice:
    """Each sinker handles 1,000 messages a second in full calls of 500."""
    handling = {f"sinker-{number}": Work(0, 0, 0.0) for number in range(sinkers)}
    for turn in range(round(seconds / STEP)):
        rows = (100, 400)[turn % 2]
        handling = {
            name: Work(old.batches + 1, old.rows + rows, old.seconds + slower * (0.1 + rows * 0.0008))
            for name, old in handling.items()
        }
        fleet.watch(STEP, sinkers=sinkers, handling=handling, full_call=500, pending=pending)
    return fleet.advice


@mutation("adviser", "+ backlog / rules.catch_up_seconds) / each", ") / each")
@mutation("adviser", "ceil((arrivals / rules.utilisation", "ceil((arrivals")
def sinkers_follow_what_waits(make: Make) -> None:
    found = with_sinkers(Watched(make, even(2400), 4), 2, pending=24_000.0 + 300_000.0)
    idle = with_sinkers(Watched(make, even(2400), 4), 8, pending=0.0, seconds=HOUR + 200)

    assert (found.answer, found.sinkers, found.needed_sinkers) == (Answer.SINKERS, 4, 5)
    assert found.workers == 4
    assert (idle.answer, idle.sinkers, idle.needed_sinkers) == (Answer.SINKERS, 5, 4), "2,400 / 0.7"


@mutation("adviser", "if needed > current and useless is not None:", "if False:")
def more_sinkers_that_do_no_more_are_not_followed_by_more(make: Make) -> None:
    fleet = Watched(make, even(2400), 4)
    assert with_sinkers(fleet, 2, pending=324_000.0).sinkers == 4
    found = with_sinkers(fleet, 4, pending=324_000.0, slower=2.0)

    assert (found.answer, found.sinkers) == (Answer.HANDLER, 4)
    assert found.reason == "4 sinkers handle hardly more than 2 did"


@mutation("adviser", "ceil(workers / max(per_host, 1))", "workers")
def hosts_have_as_many_workers_each_as_this_one(make: Make) -> None:
    fleet = Watched(make, even(6000), 4)

    assert fleet.watch(300, lag=fleet.rates * 30, workers_per_host=2).hosts == 4
    assert (fleet.advice.answer, fleet.advice.workers) == (Answer.WORKERS, 8)


def mutate(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(str(import_module(name).__file__))
    source, made = path.read_text(encoding="utf-8"), ModuleType(name)
    assert not old or source.count(old) == 1, f"{old} stands {source.count(old)} times in {path}"
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(source.replace(old, new) if old else source, path, "exec"), made.__dict__)
    return made


@pytest.mark.shows("each rule of the advice holds, and a test catches a mutation of each")
@pytest.mark.parametrize("check", MUTATIONS, ids=lambda check: check.__name__)
def test_a_rule_holds(check: Callable[[Make], None]) -> None:
    check(Adviser)


@pytest.mark.parametrize(
    ("check", "module", "rule", "mutation"),
    [(check, *each) for check, mutations in MUTATIONS.items() for each in mutations],
    ids=lambda given: getattr(given, "__name__", str(given)[:40]),
)
def test_a_mutation_of_a_rule_is_caught(
    check: Callable[[Make], None], module: str, rule: str, mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = mutate(f"kctl.advice.{module}", rule, mutation, monkeypatch)
    if module != "adviser":
        made = mutate("kctl.advice.adviser", "", "", monkeypatch)

    with pytest.raises((AssertionError, ValueError)):
        check(made.Adviser)
