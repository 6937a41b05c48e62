"""Reads log offsets, even if some leaders do not answer. In that case, kafka-python's admin client returns none."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kctl_agent.kafka.errors import reason
from kctl_agent.process import deadline

if TYPE_CHECKING:
    from kafka import TopicPartition

QUESTION_SECONDS = 20.0
"""The longest question with a request time-out of 5 s: connection, coordinator, request."""


def answered_offsets(
    admin: Any, partitions: Collection[TopicPartition], spec: Any, isolation_level: str = "read_uncommitted"
) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, str]]:
    """Returns the partitions' offsets, and the reasons for missing offsets. Asks for all partitions at once. If this
    fails, asks per leader, and then per partition. Blocks. Raises KafkaError if all partitions fail."""
    from kafka.errors import KafkaError

    try:
        return _offsets(admin, partitions, spec, isolation_level), {}
    except KafkaError as error:
        first = error
    offsets, unanswered = dict[Any, Any](), dict[Any, str]()
    for leader, led in _by_leader(admin, partitions).items():
        if leader is None:
            unanswered |= dict.fromkeys(led, "it has no leader")
            continue
        for group in (led, *([tp] for tp in led)):
            if not deadline.allows(QUESTION_SECONDS):
                unanswered |= {tp: "no time was left to ask for it" for tp in group if tp not in offsets}
                break
            if set(group) & (offsets.keys() | unanswered.keys()):
                continue
            try:
                offsets |= _offsets(admin, group, spec, isolation_level)
            except KafkaError as error:
                if len(group) == 1 or not _has_answered(error):
                    why = f"its leader, broker {leader}, does not answer for it ({reason(error)})"
                    unanswered |= dict.fromkeys(group, why)
    if not offsets:
        raise first
    return offsets, unanswered


def _offsets(admin: Any, partitions: Collection[TopicPartition], spec: Any, isolation_level: str) -> dict[Any, Any]:
    offsets: dict[Any, Any] = admin.list_partition_offsets(
        dict.fromkeys(partitions, spec), isolation_level=isolation_level
    )
    return offsets


def _by_leader(admin: Any, partitions: Collection[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
    leaders = {
        (topic["name"], partition["partition_index"]): partition["leader_id"]
        for topic in admin.describe_topics(sorted({tp.topic for tp in partitions}))
        for partition in topic["partitions"]
        if partition["leader_id"] >= 0
    }
    by_leader: dict[int | None, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        by_leader.setdefault(leaders.get(tuple(tp)), []).append(tp)
    return by_leader


def _has_answered(error: Exception) -> bool:
    from kafka.errors import BrokerResponseError, RequestTimedOutError

    return isinstance(error, BrokerResponseError) and not isinstance(error, RequestTimedOutError)
