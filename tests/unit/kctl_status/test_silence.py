from __future__ import annotations

from kctl.status.owners import Owner
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

    for second in range(TEN_MINUTES):
        statuses(second, *STATES)
    after = [statuses(TEN_MINUTES + second, *["running"] * len(STATES)) for second in range(90)]

    assert Status.STALLED not in {status for found in after[:60] for status in found}
    assert set(after[-1]) == {Status.STALLED}
