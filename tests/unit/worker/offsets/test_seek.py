from __future__ import annotations

import pytest

from kctl_agent.errors import BadParams
from kctl_agent.worker.offsets.positions import Found
from kctl_agent.worker.offsets.seek import SeekPlan, plan

LOG = Found("orders", 3, "A", 200, 100, 300)
FIRST_OF_TIME = {1_000: 100, 2_000: 250}
"""Milliseconds, and the first offset at or after that time; no record is later."""


@pytest.mark.parametrize(
    ("to", "target", "skipped", "again"),
    [
        ("earliest", 100, 0, 120),
        ("latest", 300, 80, 0),
        ("100", 100, 0, 120),
        ("220", 220, 0, 0),
        ("221", 221, 1, 0),
        ("300", 300, 80, 0),
        ("@1000", 100, 0, 120),
        ("@2000", 250, 30, 0),
        ("@9000", 300, 80, 0),
    ],
)
def test_a_seek_reports_how_many_offsets_it_skips_or_repeats(to: str, target: int, skipped: int, again: int) -> None:
    planned = plan(to, LOG, 220, FIRST_OF_TIME.get)

    assert planned == SeekPlan("orders", 3, 220, target)
    assert (planned.skipped, planned.again) == (skipped, again)
    assert planned.to_json() == {
        "topic": "orders", "partition": 3, "from": 220, "to": target, "skipped": skipped, "again": again,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("to", "why"),
    [
        *((to, f"orders-3 has offsets from 100 to 300, {to} is not among them") for to in ("99", "301")),
        *((str(2**63), "a seek"), (f"@{2**63}", "a seek"), ("9" * 5000, "a seek"), ("@" + "9" * 5000, "a seek")),
        *((to, "a seek goes to earliest, latest, an offset") for to in ("-1", "+5", "1.5", "@", "")),
    ],
)
def test_an_offset_outside_the_log_is_rejected_before_a_broker_is_asked(to: str, why: str) -> None:
    asked: list[int] = []
    for position in (None, 220):
        with pytest.raises(BadParams, match=why):
            plan(to, LOG, position, asked.append)

    assert asked == []


def test_an_empty_log_has_one_place_to_go_on() -> None:
    empty = Found("orders", 3, "A", None, 7, 7)

    assert {plan(to, empty, None, lambda _: None).target for to in ("earliest", "latest", "7", "@5")} == {7}
