"""The brokers, and the leader and replicas of each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kctl.rows import fields
from kctl.rows.partitions import topic_partition
from kctl_agent.wire import JsonObject

__all__ = ["BrokerRow", "TopicRow", "broker_rows", "topic_rows"]


@dataclass(frozen=True, slots=True)
class BrokerRow:
    node_id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool | None


class TopicRow(NamedTuple):
    """Leader and replicas of a partition. A tuple, because every worker reports all partitions of its topics."""

    topic: str
    partition: int
    leader_id: int | None
    replica_nodes: tuple[int, ...] | None
    isr_nodes: tuple[int, ...] | None
    offline: tuple[int, ...] | None

    def to_json(self) -> JsonObject:
        return self._asdict()


def broker_rows(result: JsonObject) -> tuple[BrokerRow, ...]:
    return tuple(
        BrokerRow(
            node_id=fields.required(fields.whole(row, "node_id"), "node_id"),
            host=fields.text(row, "host"),
            port=fields.whole(row, "port"),
            rack=fields.text(row, "rack"),
            controller=fields.flag(row, "controller"),
        )
        for row in fields.objects(result, "rows") or ()
    )


def topic_rows(result: JsonObject) -> tuple[TopicRow, ...]:
    return tuple(
        TopicRow(
            *topic_partition(row),
            leader_id=fields.whole(row, "leader_id"),
            replica_nodes=fields.nodes(row, "replica_nodes"),
            isr_nodes=fields.nodes(row, "isr_nodes"),
            offline=fields.nodes(row, "offline"),
        )
        for row in fields.objects(result, "rows") or ()
    )
