from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from kctl.status.owners import UNSEEN, Owner
from tests.partitions import Row, RowAssessor

HOUR = 3600


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
def statuses() -> dict[Query, list[str]]:
    found = {query: list[str]() for query in (*RUNNING, *(Query(each, 10, False, 2 * HOUR) for each in KILLED))}
    assessor = RowAssessor()
    for second in range(0, 3 * HOUR, 10):
        rows, owners = zip(*(query.seen(number, second) for number, query in enumerate(found)), strict=True)
        assessed = assessor.assess(list(rows), _of(owners), float(second), float(second))
        for query, each in zip(found, assessed, strict=True):
            found[query].append(each.status.value)
    return found


def _of(owners: Sequence[Owner]) -> Callable[[Row], Owner]:
    return lambda row: owners[row.partition]


@pytest.mark.parametrize("query", RUNNING)
def test_a_query_that_runs_is_never_stopped_however_rarely_its_checkpoint_is_read(query: Query) -> None:
    found = statuses()[query]

    assert set(found) <= {"ok", "unknown"}
    assert "unknown" not in found[(3 * query.interval + query.batch) // 10 :]


@pytest.mark.parametrize(("interval", "within"), KILLED.items())
def test_a_query_that_was_killed_between_batches_is_stopped_after_a_few_readings(interval: int, within: int) -> None:
    query = Query(interval, 10, False, 2 * HOUR)

    assert 10 * statuses()[query].index("stopped") - query.killed_at <= within
