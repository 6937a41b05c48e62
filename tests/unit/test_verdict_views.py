"""Tests of ordinary changes tolerate a view that blames late brokers, and no other."""

from __future__ import annotations

import pytest

from tests.verdict_views import Shown, watched

LATE = Shown("failing", "no Kafka broker has answered since 2026-11-28T02:00:00Z")
WELL = {"status": Shown("ok", ""), "api": Shown("ok", "")}


@pytest.mark.parametrize(
    ("shown", "passes"),
    [
        ({"status": LATE, "metrics": Shown("failing", "about brokers")}, True),
        ({"alerts": Shown("failing", "the verdict on the fleet of group g is failing (1): brokers. See")}, True),
        ({"status": LATE, "api": Shown("failing", "no worker has worked")}, False),
        ({"status": LATE, "metrics": Shown("failing", "about brokers, workers")}, False),
        ({"status": Shown("failing", "")}, False),
    ],
)
def test_only_a_view_that_blames_late_brokers_may_show_failing(shown: dict[str, Shown], passes: bool) -> None:
    polls = iter([shown])

    def watch() -> set[str]:
        return watched(lambda: next(polls, WELL), set, lambda: None, lambda: None)

    if passes:
        assert watch() == set()
    else:
        with pytest.raises(AssertionError, match="failing"):
            watch()
