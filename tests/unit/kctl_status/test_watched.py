"""The status of a query that is known by its checkpoint alone, which is read from time to time."""

from __future__ import annotations

import pytest

from kctl.status.owners import UNSEEN, Owner
from tests.partitions import Row, RowAssessor

HOUR = 3600


def statuses(interval: int, batch: int, killed_at: int = 10 * HOUR, *, plans: bool = True) -> list[str]:
    """The status every 10 s for three hours. A batch follows the other, and is seen planned and not committed if it
    `plans`; messages arrive all the time."""
    assessor, found = RowAssessor(), []
    for second in range(0, 3 * HOUR, 10):
        read_at = second // interval * interval
        began_at = min(read_at, killed_at) // batch * batch
        row = Row("orders", 0, 0, 10 * began_at, None, 10 * second + 50, None, None, None, second - read_at)
        running = float(read_at - began_at) if plans else None
        owner = Owner("the query", UNSEEN, None, None, running, interval_seconds=interval)
        [assessed] = assessor.assess([row], lambda _, owner=owner: owner, float(second), float(second))  # type: ignore[misc]
        found.append(assessed.status.value)
    return found


@pytest.mark.parametrize("plans", [True, False])
@pytest.mark.parametrize("batch", [10, 540])
@pytest.mark.parametrize("interval", [60, 900, 3600])
def test_a_query_that_runs_is_never_stopped_however_rarely_its_checkpoint_is_read(
    interval: int, batch: int, plans: bool
) -> None:
    found = statuses(interval, batch, plans=plans)

    assert set(found) <= {"ok", "unknown"}
    assert "unknown" not in found[(3 * interval + batch) // 10 :]


@pytest.mark.parametrize(("interval", "within"), [(10, 200), (60, 370), (300, 1300)])
def test_a_query_that_was_killed_between_batches_is_stopped_after_a_few_readings(interval: int, within: int) -> None:
    found = statuses(interval, 10, killed_at := 2 * HOUR, plans=False)

    assert 10 * found.index("stopped") - killed_at <= within
