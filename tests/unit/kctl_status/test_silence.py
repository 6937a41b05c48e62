"""From when silence counts against a partition that somebody reads again."""

from __future__ import annotations

import pytest

from kctl.status.owners import Owner
from kctl.status.words import Status
from tests.partitions import Row, RowAssessor

HOUR = 3600


@pytest.mark.parametrize("state", ["paused", "throttled", "elsewhere"])
def test_silence_counts_from_when_a_worker_may_read_again(state: str) -> None:
    assessor = RowAssessor()

    def status(second: int, state: str) -> Status:
        row = Row("orders", 0, 0, 100, 100, 101 + second, None, "worker-0", 1, 0.0)
        owner = Owner("worker-0", state, last_batch_seconds=2.0)
        [found] = assessor.assess([row], lambda _: owner, float(second), float(second))
        return found.status

    for second in range(HOUR):
        status(second, state)
    after = [status(HOUR + second, "running") for second in range(90)]

    assert Status.STALLED not in after[:60]
    assert after[-1] is Status.STALLED
