from __future__ import annotations

from kctl.kafka.target import Target, target, topic_and_partitions

PLACES = {
    "earliest": Target("earliest"),
    "latest": Target("latest"),
    "1200": Target("offset", 1200),
    **dict.fromkeys(("@1795255200000", "2026-11-21T10:00:00Z", "2026-11-21T10:00:00"), Target("time", 1795255200000)),
    "shift-by -100": Target("shift", -100),
    "shift-by 7": Target("shift", 7),
}


def test_a_place_in_a_log_is_understood_and_partitions_stand_after_a_colon() -> None:
    assert {words: target(words.split()) for words in PLACES} == PLACES
    assert topic_and_partitions("orders") == ("orders", None)
    assert topic_and_partitions("orders:2,0,2") == ("orders", [0, 2])
