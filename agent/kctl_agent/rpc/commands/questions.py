"""The questions that a worker answers: each a reply of its last snapshot, with the ages of now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kctl_agent.errors import NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.partitions import PartitionsReply
from kctl_agent.rpc.commands.base import AgentCommand, Answer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject


def _answer(reply_of: Callable[[Snapshot], object | None], not_yet: str = "") -> Answer:
    """An answer that is a part of the snapshot. Raises NotReady: it is not there yet; an empty one would be a lie."""

    def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
        reply = reply_of(snapshot)
        if reply is None:
            raise NotReady(f"{snapshot.worker.name} {not_yet} yet: ask again")
        document: JsonObject = encoded(reply, now - snapshot.published_at)
        return document

    return answer


_PARTITIONS: Final = _answer(lambda snapshot: PartitionsReply(snapshot.partitions))
_NO_METADATA: Final = "has no metadata from a broker"

QUESTIONS: Final = (
    AgentCommand("kafka_lag", _PARTITIONS, "lag of each assigned partition, and the offsets it is counted from"),
    AgentCommand("offset_checker", _PARTITIONS, "start, committed, position and end offset of each assigned partition"),
    AgentCommand(
        "block_size",
        _answer(lambda snapshot: snapshot.storage, "has not opened its storage"),
        "messages and bytes in the storage: pending, delayed, processing, dead; the limits",
    ),
    AgentCommand(
        "member_leader",
        _answer(lambda snapshot: snapshot.member, "has not joined its consumer group"),
        "member id, generation, leader, assigned partitions",
    ),
    AgentCommand(
        "metadata_brokers",
        _answer(lambda snapshot: snapshot.brokers, _NO_METADATA),
        "node id, host, port, rack of each broker; which is the controller",
    ),
    AgentCommand(
        "metadata_topics",
        _answer(lambda snapshot: snapshot.topics, _NO_METADATA),
        "leader, replicas, in-sync and offline replicas of each partition",
    ),
    AgentCommand(
        "workers",
        _answer(lambda snapshot: snapshot.worker),
        "state, uptime, memory, query, last batch, rows per second, last error, events",
    ),
)
