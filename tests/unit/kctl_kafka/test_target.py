from __future__ import annotations

import pytest

from kctl.errors import UsageError
from kctl.kafka.target import Target, milliseconds, target, topic_and_partitions


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["earliest"], Target("earliest")),
        (["latest"], Target("latest")),
        (["1200"], Target("offset", 1200)),
        (["@1795255200000"], Target("time", 1795255200000)),
        (["2026-11-21T10:00:00Z"], Target("time", 1795255200000)),
        (["shift-by", "-100"], Target("shift", -100)),
        (["shift-by", "7"], Target("shift", 7)),
    ],
)
def test_a_place_in_a_log_is_understood(words: list[str], meant: Target) -> None:
    assert target(words) == meant


@pytest.mark.parametrize("words", [["-5"], ["soon"], ["shift-by"], ["shift-by", "x"], ["1", "2"], ["2026-13-01"]])
def test_anything_else_is_rejected(words: list[str]) -> None:
    with pytest.raises(UsageError, match=words[0]):
        target(words)


def test_a_time_may_be_milliseconds_without_a_sign() -> None:
    assert milliseconds("1795255200000") == milliseconds("2026-11-21T10:00:00+00:00")
    assert milliseconds("2026-11-21T10:00:00") == 1795255200000, "without a zone it is in UTC"


def test_partitions_stand_after_a_colon() -> None:
    assert topic_and_partitions("orders") == ("orders", None)
    assert topic_and_partitions("orders:2,0,2") == ("orders", [0, 2])
    for word in ("orders:", ":1", "orders:a"):
        with pytest.raises(UsageError):
            topic_and_partitions(word)
