"""How many tasks a batch is read by."""

from __future__ import annotations

import pytest

from kctl_agent.worker.query.batch_put import task_count


@pytest.mark.parametrize(
    ("sizes", "at_a_time", "tasks"),
    [
        ([], 2, 0),
        ([500], 2, 1),
        ([500] * 8, 2, 2),
        ([120, 80, 100, 90, 110, 100, 100, 100], 2, 2),
        ([50] * 400, 2, 2),
        ([50] * 400, 16, 16),
        ([50] * 8, 16, 8),
        ([19_000, *[2] * 399], 2, 8),
        ([250, *[50] * 399], 2, 2),
        ([19_000, 1], 4, 2),
    ],
)
def test_tasks_are_as_many_as_run_or_as_partitions_demand(sizes: list[int], at_a_time: int, tasks: int) -> None:
    assert task_count(sizes, at_a_time) == tasks


@pytest.mark.parametrize(("sizes", "tasks"), [([], 0), ([1] * 8, 1), ([5_000] * 8, 2), ([12_500] * 8, 4)])
def test_a_task_has_as_many_records_as_it_should_at_least(sizes: list[int], tasks: int) -> None:
    assert task_count(sizes, 4, 25_000) == tasks
