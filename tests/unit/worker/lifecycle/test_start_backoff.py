"""When a query that could not be started is tried again."""

from __future__ import annotations

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS
from kctl_agent.worker.lifecycle.start_backoff import StartBackoff


def test_each_failure_in_a_row_waits_longer_up_to_the_longest_pause() -> None:
    backoff = StartBackoff()
    assert backoff.is_due(0.0)

    assert [backoff.failed(100.0) for _ in range(7)] == [*RETRY_SECONDS, RETRY_SECONDS[-1], RETRY_SECONDS[-1]]
    assert backoff.failures == 7
    assert not backoff.is_due(100.0 + RETRY_SECONDS[-1] - 0.1)
    assert backoff.is_due(100.0 + RETRY_SECONDS[-1])


def test_after_a_batch_the_next_failure_is_the_first_again() -> None:
    backoff = StartBackoff()
    for _ in range(3):
        backoff.failed(100.0)
    backoff.reset()

    assert not backoff.is_due(100.0 + RETRY_SECONDS[2] - 0.1), "what is waited for goes on being waited for"
    assert backoff.failed(200.0) == RETRY_SECONDS[0]
