from __future__ import annotations

from kctl.kafka.client.connection import Deadline
from tests.clock import Clock


def test_retries_end_at_half_of_the_time_and_waiting_at_a_fifth() -> None:
    clock = Clock(100.0)
    deadline = Deadline(10.0, has_retries=True, clock=clock)
    seen = []

    for now in (100.0, 104.9, 105.1, 107.8, 108.0, 120.0):
        clock.now = now
        seen.append((round(deadline.left_seconds, 1), deadline.may_retry, deadline.may_wait))

    assert seen == [
        (10.0, True, True),
        (5.1, True, True),
        (4.9, False, True),
        (2.2, False, True),
        (2.0, False, False),
        (0.0, False, False),
    ]
    assert deadline.advice == "give it longer with --timeout, or look at the broker"
    assert deadline.left_milliseconds == 1, "0 would be no limit for kafka-python"


def test_a_renewed_deadline_has_the_whole_time_again() -> None:
    clock = Clock(100.0)
    deadline = Deadline(10.0, has_retries=True, clock=clock)
    clock.now += 9

    deadline.renew()

    assert (deadline.left_seconds, deadline.may_retry) == (10.0, True)
