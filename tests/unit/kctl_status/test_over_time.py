"""Judgements over minutes and hours: of silences, of watched checkpoints, and of random histories with known truth;
`benchmarks.status_rules` runs more histories and compares Burrow's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from benchmarks._histories import KINDS, Truth, histories
from benchmarks._judgements import RULES, scores, statuses
from kctl.status.owners import UNSEEN, Owner
from kctl.status.words import Status
from tests.partitions import Row, RowAssessor

STATES = ("paused", "throttled", "elsewhere")
TEN_MINUTES = 600


def test_silence_counts_from_when_a_worker_may_read_again() -> None:
    assessor = RowAssessor()

    def statuses(second: int, *states: str) -> list[Status]:
        rows = [Row("orders", n, 0, 100, 100, 101 + second, None, "worker-0", 1, 0.0) for n in range(len(states))]
        found = assessor.assess(
            rows,
            lambda row: Owner("worker-0", states[row.partition], last_batch_seconds=2.0),
            float(second),
            float(second),
        )
        return [each.status for each in found]

    for second in range(0, TEN_MINUTES, 5):
        statuses(second, *STATES)
    after = [statuses(TEN_MINUTES + second, *["running"] * len(STATES)) for second in range(0, 90, 5)]

    assert Status.STALLED not in {status for found in after[:12] for status in found}
    assert set(after[-1]) == {Status.STALLED}


HOUR = 3600
STEP = 20


class Query(NamedTuple):
    """Its checkpoint is read every `interval` seconds. Batches of `batch` seconds follow each other; with `plans`,
    reads also see batches that are planned but not committed."""

    interval: int
    batch: int
    plans: bool
    killed_at: int = 10 * HOUR

    def seen(self, partition: int, second: int) -> tuple[Row, Owner]:
        read_at = second // self.interval * self.interval
        began_at = min(read_at, self.killed_at) // self.batch * self.batch
        end = 10 * second + 50  # messages arrive all the time
        row = Row("orders", partition, 0, 10 * began_at, None, end, None, None, None, second - read_at)
        running = float(read_at - began_at) if self.plans else None
        return row, Owner("the query", UNSEEN, None, None, running, interval_seconds=self.interval)


RUNNING = [Query(*each) for each in product((60, 900, 3600), (10, 540), (True, False))]
KILLED = {10: 200, 60: 370, 300: 1300}
"""The interval of a query that is killed between batches, and the limit in seconds until it is known as stopped."""


@cache
def of_queries() -> dict[Query, list[str]]:
    found = {query: list[str]() for query in (*RUNNING, *(Query(each, 10, False, 2 * HOUR) for each in KILLED))}
    assessor = RowAssessor()
    for second in range(0, 3 * HOUR, STEP):
        rows, owners = zip(*(query.seen(number, second) for number, query in enumerate(found)), strict=True)
        assessed = assessor.assess(list(rows), _of(owners), float(second), float(second))
        for query, each in zip(found, assessed, strict=True):
            found[query].append(each.status.value)
    return found


def _of(owners: Sequence[Owner]) -> Callable[[Row], Owner]:
    return lambda row: owners[row.partition]


@pytest.mark.parametrize("query", RUNNING)
def test_a_query_that_runs_is_never_stopped_however_rarely_its_checkpoint_is_read(query: Query) -> None:
    found = of_queries()[query]

    assert set(found) <= {"ok", "unknown"}
    assert "unknown" not in found[(3 * query.interval + query.batch) // STEP :]


@pytest.mark.parametrize(("interval", "within"), KILLED.items())
def test_a_query_that_was_killed_between_batches_is_stopped_after_a_few_readings(interval: int, within: int) -> None:
    query = Query(interval, 10, False, 2 * HOUR)

    assert STEP * of_queries()[query].index("stopped") - query.killed_at <= within


@pytest.mark.shows("false and missed alarms of each rule are below 1 % over random histories")
@pytest.mark.timeout(120)
def test_alarms_are_false_or_missing_in_less_than_one_poll_of_a_hundred() -> None:
    """A poll of one history costs as much as one of twenty, so the benchmark alone runs those with a poll every 5 s or
    more often."""
    some = [history for history in histories(28) if history.poll_seconds > 5]

    found = scores(some, statuses)

    assert {history.kind for history in some} == set(KINDS)
    assert {second.truth for history in some for second in history.seconds} == set(Truth)
    assert found.keys() == {*RULES, "any"}
    for rule, score in found.items():
        assert min(score.well, score.ill) > 1000, rule
        assert max(score.false_share, score.missed_share) < 0.01, (rule, score.by_history.most_common(3))
