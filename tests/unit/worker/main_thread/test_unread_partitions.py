"""Events about partitions that are left out or isolated: one when it begins, one when it ends."""

from __future__ import annotations

from collections.abc import Mapping

from kafka import TopicPartition

from kctl_agent.worker.main_thread.unread_partitions import UnreadPartitions

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Recorded:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, TopicPartition | None]] = []
        self.published: list[tuple[str, Mapping[TopicPartition, str]]] = []

    def happened(self, kind: str, text: str, tp: TopicPartition | None = None) -> None:
        self.events.append((kind, text, tp))

    def leaves_out(self, reasons: Mapping[TopicPartition, str]) -> None:
        self.published.append(("left out", reasons))

    def isolates(self, reasons: Mapping[TopicPartition, str]) -> None:
        self.published.append(("isolated", reasons))


def test_a_partition_is_left_out_and_taken_in_with_one_event_each() -> None:
    recorded = Recorded()
    unread = UnreadPartitions(recorded)
    for reasons in ({}, {SECOND: "no leader", FIRST: "no leader"}, {SECOND: "no leader", FIRST: "no leader"}, {}):
        unread.left_out(reasons)

    assert [(kind, tp) for kind, _, tp in recorded.events] == [
        ("partition_left_out", FIRST),
        ("partition_left_out", SECOND),
        ("partition_taken_in", FIRST),
        ("partition_taken_in", SECOND),
    ]
    assert recorded.events[0][1] == "orders-0 is not read: no leader; the other partitions are"
    assert len(recorded.published) == 2, "nothing is published that has not changed"
