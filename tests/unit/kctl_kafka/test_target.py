from __future__ import annotations

import pytest

from kctl.kafka.target import Target, target, topic_and_partitions


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("earliest", Target("earliest")),
        ("latest", Target("latest")),
        ("1200", Target("offset", 1200)),
        ("@1795255200000", Target("time", 1795255200000)),
        ("2026-11-21T10:00:00Z", Target("time", 1795255200000)),
        ("2026-11-21T10:00:00", Target("time", 1795255200000)),
        ("shift-by -100", Target("shift", -100)),
        ("shift-by 7", Target("shift", 7)),
    ],
)
def test_a_place_in_a_log_is_understood(words: str, meant: Target) -> None:
    assert target(words.split()) == meant


def test_partitions_stand_after_a_colon() -> None:
    assert topic_and_partitions("orders") == ("orders", None)
    assert topic_and_partitions("orders:2,0,2") == ("orders", [0, 2])
