from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.consumer_group.membership import partition_names


def test_a_line_shows_twenty_partitions_in_order_and_how_many_more_there_are() -> None:
    many = {TopicPartition("t", partition) for partition in range(400)}

    assert partition_names(set()) == "none"
    assert partition_names({TopicPartition("t", 10), TopicPartition("t", 9)}) == "t-9, t-10"
    assert partition_names(many, {TopicPartition("t", 1): 7}).startswith("t-0, t-1 from 7, t-2, ")
    assert partition_names(many).endswith(", t-19 and 380 more")
