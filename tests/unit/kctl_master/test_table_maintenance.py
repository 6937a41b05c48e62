from __future__ import annotations

import pytest

from kctl.master.table_maintenance import LEAST_FILES, LONGEST_SECONDS, PATIENCE_SECONDS, REST_SECONDS, Schedule

MANY, BATCH = LEAST_FILES, 1000


@pytest.fixture
def schedule() -> Schedule:
    return Schedule(0.0)


@pytest.mark.shows("the master compacts small files at quiet times and removes old ones daily")
def test_many_small_files_are_compacted_at_once_where_one_batch_takes_all_that_waits(schedule: Schedule) -> None:
    assert not schedule.is_due(1.0, MANY - 1, 0, BATCH)
    assert not schedule.is_due(1.0, None, 0, BATCH)
    assert schedule.is_due(1.0, MANY, BATCH, BATCH)
    assert not schedule.is_due(LONGEST_SECONDS - 1.0, None, None, BATCH)
    assert schedule.is_due(LONGEST_SECONDS, None, None, BATCH), "once a day, whatever is reported"


@pytest.mark.parametrize("lag", [BATCH + 1, None])
def test_a_group_that_is_behind_has_it_done_after_an_hour_of_many_small_files(
    schedule: Schedule, lag: int | None
) -> None:
    assert not schedule.is_due(1.0, MANY, lag, BATCH)
    assert not schedule.is_due(100.0, MANY - 1, lag, BATCH)
    assert not schedule.is_due(200.0, MANY, lag, BATCH)
    assert not schedule.is_due(100.0 + PATIENCE_SECONDS, MANY, lag, BATCH)
    assert schedule.is_due(200.0 + PATIENCE_SECONDS, MANY, lag, BATCH)


def test_it_rests_for_ten_minutes_or_for_nineteen_times_as_long_as_it_took(schedule: Schedule) -> None:
    schedule.done(10.0, 12.0)
    assert not schedule.is_due(11.0 + REST_SECONDS, MANY, 0, BATCH)
    assert schedule.is_due(12.0 + REST_SECONDS, MANY, 0, BATCH)

    schedule.done(1000.0, 1100.0)
    assert not schedule.is_due(1099.0 + 1900.0, MANY, 0, BATCH)
    assert schedule.is_due(1100.0 + 1900.0, MANY, 0, BATCH)
