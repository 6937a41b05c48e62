"""A command's result as an operator reads it. `TABLES` is the table of the commands that `kctl rpc` knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kctl.cli.fleet.worker_table import RPC, RPC_WIDE, worker_table
from kctl.cli.table import Column, cell, clip, ranges, render, render_columns
from kctl.cli.times import duration, moment
from kctl.rpc import answers
from kctl_agent.wire import JsonObject

if TYPE_CHECKING:
    from kctl.rows.cluster import BrokerRow, TopicRow
    from kctl.rows.lag import LagTotals
    from kctl.rows.members import GroupMembers
    from kctl.rows.methods import MethodRow
    from kctl.rows.offsets import Offsets
    from kctl.rows.partitions import TopicPartition
    from kctl.rows.storage import StorageStats
    from kctl.rows.workers import PauseRow, PingRow, WorkerRow

__all__ = ["OLD_SECONDS", "TABLES", "Table", "compact_partitions", "pause_text"]

R = TypeVar("R")

_LINE_COLUMNS = 120

OLD_SECONDS = 2.0
"""Answers older than this are shown with their age: the collector takes new ones every second."""


def pause_text(pause: PauseRow) -> str:
    """`orders-3 is paused by ann since 2026-11-21T10:04:02Z`"""
    topic, partition = pause.topic, pause.partition
    what = "everything" if topic is None else topic if partition is None else f"{topic}-{partition}"
    return f"{cell(what)} is paused by {cell(pause.by)} since {moment(pause.since or 0)}"


def compact_partitions(partitions: Iterable[TopicPartition]) -> str:
    """`orders[0-3,6] payments[1]`; empty for none."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}[{ranges(topics[topic], shortest=2)}]" for topic in sorted(topics))


def _kafka_lag(lag: LagTotals) -> list[str]:
    rows = [("total", lag.total), *sorted(lag.topics.items())]
    lines = render((Column("topic"), Column("lag", is_number=True)), rows)
    if lag.unknown:
        lines.append(f"unknown: {compact_partitions(lag.unknown)}")
    return lines


def _offset_checker(offsets: Offsets) -> list[str]:
    columns = [
        Column("topic"),
        Column("partition", is_number=True),
        Column("current-offset", is_number=True),
        Column("kafka-max-offset", is_number=True),
        Column("remaining-count", is_number=True),
        Column("worker"),
    ]
    *values, ages = offsets
    if max(filter(None, ages), default=0) > OLD_SECONDS:
        columns.append(Column("age", is_number=True))
        values.append([duration(age) for age in ages])
    return render_columns(columns, values)


def _block_size(storage: StorageStats) -> list[str]:
    names = ("pending", "delayed", "processing", "dead", "bytes", "limit")
    cells = (storage.pending, storage.delayed, storage.processing, storage.dead, storage.bytes, storage.limit)
    lines = render([Column(name, is_number=True) for name in names], [cells])
    return [*lines, f"full: {cell(storage.full)}"] if storage.full else lines


def _member_leader(group: GroupMembers) -> list[str]:
    lines = [f"leader: {cell(group.leader)}"]
    if not group.agreed:
        generations = sorted({each.generation for each in group.members if each.generation is not None})
        lines.append(f"the members do not agree; generations: {cell(generations)}")
    rows = [
        (each.worker, each.member_id, each.is_leader, each.generation, compact_partitions(each.partitions))
        for each in group.members
    ]
    columns = (
        Column("worker"),
        Column("member-id"),
        Column("leader"),
        Column("generation", is_number=True),
        Column("partitions"),
    )
    return [*lines, *render(columns, rows)]


def _metadata_brokers(brokers: Sequence[BrokerRow]) -> list[str]:
    columns = (
        Column("node-id", is_number=True),
        Column("host"),
        Column("port", is_number=True),
        Column("rack"),
        Column("controller"),
    )
    return render(columns, [(row.node_id, row.host, row.port, row.rack, row.controller) for row in brokers])


def _metadata_topics(topics: Sequence[TopicRow]) -> list[str]:
    columns = (
        Column("topic"),
        Column("partition", is_number=True),
        Column("leader-id", is_number=True),
        Column("replica-nodes"),
        Column("isr-nodes"),
        Column("offline"),
    )
    return render(columns, [(*row[:3], *(nodes or None for nodes in row[3:])) for row in topics])


def _workers(workers: Sequence[WorkerRow]) -> list[str]:
    """The error is cut at 120 columns."""
    return [clip(line, _LINE_COLUMNS) for line in worker_table(workers, RPC)]


def _workers_wide(workers: Sequence[WorkerRow]) -> list[str]:
    return worker_table(workers, RPC_WIDE)


def _ping(pings: Sequence[PingRow]) -> list[str]:
    columns = (Column("name"), Column("pid", is_number=True), Column("version"))
    return render(columns, [(row.name, row.pid, row.version) for row in pings])


def _describe(methods: Sequence[MethodRow]) -> list[str]:
    columns = (
        Column("method"),
        Column("rpc"),
        Column("changes"),
        Column("deadline-ms", is_number=True),
        Column("summary"),
    )
    return render(columns, [(row.method, row.rpc, row.changes, row.deadline_ms, row.summary) for row in methods])


class Table(NamedTuple, Generic[R]):
    """What a command asks, for its help, how its answer is read, and how that is shown."""

    question: str
    read: Callable[[JsonObject], R]
    lines: Callable[[R], list[str]]
    wide: Callable[[R], list[str]] | None = None
    """With every column, nothing cut; None: `lines` has them all."""


TABLES: dict[str, Table[Any]] = {
    "kafka_lag": Table("How many messages wait in Kafka, in all and per topic", answers.kafka_lag, _kafka_lag),
    "offset_checker": Table(
        "How far each partition has been read, and by which worker", answers.offset_checker, _offset_checker
    ),
    "block_size": Table("How many messages wait in the storage", answers.block_size, _block_size),
    "member_leader": Table("The leader of the consumer group, and its members", answers.member_leader, _member_leader),
    "metadata_brokers": Table("The Kafka brokers", answers.metadata_brokers, _metadata_brokers),
    "metadata_topics": Table("Leader and replicas of each partition", answers.metadata_topics, _metadata_topics),
    "workers": Table("What each worker is doing", answers.workers, _workers, _workers_wide),
    "ping": Table("The processes that answer", answers.ping, _ping),
    "describe": Table("Which methods are served", answers.describe, _describe),
}
