"""A command's result as an operator reads it. `TABLES` is the table of the commands that `kctl rpc` knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kctl.cli.table import Column, cell, clip, ranges, render
from kctl.cli.times import duration, moment

__all__ = [
    "OLD_SECONDS",
    "PROCESS_COLUMNS",
    "TABLES",
    "Table",
    "causes",
    "compact_partitions",
    "mebibytes",
    "pause_text",
]

Result = dict[str, Any]

_LINE_COLUMNS = 120

OLD_SECONDS = 2.0
"""Answers older than this are shown with their age: the collector takes new ones every second."""

PROCESS_COLUMNS = (
    Column("name"),
    Column("desired"),
    Column("state"),
    Column("doing"),
    Column("since", is_number=True),
    Column("pid", is_number=True),
    Column("restarts"),
    Column("next-try", is_number=True),
    Column("rss", is_number=True),
)
"""What `kctl status` and `kctl rpc workers` begin with."""


def pause_text(scope: Result) -> str:
    """`orders-3 is paused by ann since 2026-11-21T10:04:02Z`"""
    topic, partition = scope.get("topic"), scope.get("partition")
    what = "everything" if topic is None else topic if partition is None else f"{topic}-{partition}"
    return f"{cell(what)} is paused by {cell(scope.get('by'))} since {moment(scope.get('since') or 0)}"


def mebibytes(count: int | None) -> str | None:
    return None if count is None else f"{count / 1048576:.0f}MiB"


def compact_partitions(partitions: Iterable[Result]) -> str:
    """`orders[0-3,6] payments[1]`; empty for none."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each["topic"], []).append(each["partition"])
    return " ".join(f"{topic}[{ranges(topics[topic], shortest=2)}]" for topic in sorted(topics))


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _kafka_lag(result: Result) -> list[str]:
    rows = [("total", result["total"]), *sorted(result["topics"].items())]
    lines = render((Column("topic"), Column("lag", is_number=True)), rows)
    if result["unknown"]:
        lines.append(f"unknown: {compact_partitions(result['unknown'])}")
    return lines


def _offset_checker(result: Result) -> list[str]:
    columns = [
        Column("topic"),
        Column("partition", is_number=True),
        Column("current-offset", is_number=True),
        Column("kafka-max-offset", is_number=True),
        Column("remaining-count", is_number=True),
        Column("worker"),
    ]
    keys = ["topic", "partition", "current_offset", "kafka_max_offset", "remaining_count", "worker"]
    rows = [[row[key] for key in keys] for row in result["rows"]]
    if any((row.get("age_seconds") or 0) > OLD_SECONDS for row in result["rows"]):
        columns.append(Column("age", is_number=True))
        rows = [[*cells, duration(row.get("age_seconds"))] for cells, row in zip(rows, result["rows"], strict=True)]
    return render(columns, rows)


def _block_size(result: Result) -> list[str]:
    names = ("pending", "delayed", "processing", "dead", "bytes", "limit")
    lines = render([Column(name, is_number=True) for name in names], [[result.get(name) for name in names]])
    return [*lines, f"full: {cell(result['full'])}"] if result.get("full") else lines


def _member_leader(result: Result) -> list[str]:
    lines = [f"leader: {cell(result['leader'])}"]
    if not result.get("agreed", True):
        generations = sorted({each["generation"] for each in result["members"] if each["generation"] is not None})
        lines.append(f"the members do not agree; generations: {cell(generations)}")
    rows = [
        (
            each["worker"],
            each["member_id"],
            each["is_leader"],
            each["generation"],
            compact_partitions(each["partitions"]),
        )
        for each in result["members"]
    ]
    columns = (
        Column("worker"),
        Column("member-id"),
        Column("leader"),
        Column("generation", is_number=True),
        Column("partitions"),
    )
    return [*lines, *render(columns, rows)]


def _metadata_brokers(result: Result) -> list[str]:
    columns = (
        Column("node-id", is_number=True),
        Column("host"),
        Column("port", is_number=True),
        Column("rack"),
        Column("controller"),
    )
    keys = ("node_id", "host", "port", "rack", "controller")
    return render(columns, [[row.get(key) for key in keys] for row in result["rows"]])


def _metadata_topics(result: Result) -> list[str]:
    columns = (
        Column("topic"),
        Column("partition", is_number=True),
        Column("leader-id", is_number=True),
        Column("replica-nodes"),
        Column("isr-nodes"),
        Column("offline"),
    )
    keys = ("topic", "partition", "leader_id", "replica_nodes", "isr_nodes", "offline")
    return render(columns, [[row.get(key) for key in keys] for row in result["rows"]])


def causes(supervisor: Result) -> str | None:
    """`3: signal 2, memory 1`; None when it is not known, `0` of none."""
    total = supervisor.get("restarts")
    by_cause = supervisor.get("restarts_by_cause")
    if not total or not by_cause:
        return None if total is None else str(total)
    return f"{total}: " + ", ".join(f"{cause} {count}" for cause, count in by_cause.items())


_WORKER_COLUMNS = (
    *PROCESS_COLUMNS,
    Column("batch", is_number=True),
    Column("last-batch-seconds", is_number=True),
    Column("rows/s", is_number=True),
    Column("last-error"),
)
_ONLY_WIDE = ("desired", "next-try", "batch", "last-batch-seconds")


def _workers(result: Result) -> list[str]:
    """What fits into 80 columns, but for the error, which is cut at 120."""
    kept = [i for i, column in enumerate(_WORKER_COLUMNS) if column.heading not in _ONLY_WIDE]
    supervised = [(row, row.get("supervisor") or {}) for row in result["rows"]]
    rows = [_worker_cells(row, {**each, "restarts_by_cause": None}) for row, each in supervised]
    lines = render([_WORKER_COLUMNS[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return [clip(line, _LINE_COLUMNS) for line in lines]


def _workers_wide(result: Result) -> list[str]:
    return render(_WORKER_COLUMNS, [_worker_cells(row, row.get("supervisor") or {}) for row in result["rows"]])


def _worker_cells(row: Result, supervisor: Result) -> tuple[object, ...]:
    """`state` is the supervisor's word, `doing` the worker's own; `rss` of all its processes if that is known."""
    return (
        row["name"],
        supervisor.get("desired"),
        supervisor.get("state"),
        row.get("state"),
        duration(supervisor.get("since_seconds", row.get("state_seconds"))),
        row.get("pid"),
        causes(supervisor),
        duration(supervisor.get("next_try_seconds")),
        mebibytes(supervisor.get("resident_bytes") or row.get("rss_bytes")),
        row.get("batch_id"),
        _number(row.get("last_batch_seconds"), 2),
        _number(row.get("rows_per_second"), 0),
        row.get("last_error") or supervisor.get("last_error"),
    )


def _ping(result: Result) -> list[str]:
    rows = result.get("rows", [result])
    columns = (Column("name"), Column("pid", is_number=True), Column("version"))
    return render(columns, [(row.get("name"), row.get("pid"), row.get("version")) for row in rows])


def _describe(result: Result) -> list[str]:
    columns = (
        Column("method"),
        Column("rpc"),
        Column("changes"),
        Column("deadline-ms", is_number=True),
        Column("summary"),
    )
    keys = ("method", "rpc", "changes", "deadline_ms", "summary")
    return render(columns, [[row.get(key) for key in keys] for row in result["methods"]])


@dataclass(frozen=True, slots=True)
class Table:
    """How a command's result is shown, and what the command asks, for its help."""

    question: str
    lines: Callable[[Result], list[str]]
    wide: Callable[[Result], list[str]] | None = None
    """With every column, nothing cut; None: `lines` has them all."""


TABLES: dict[str, Table] = {
    "kafka_lag": Table("How many messages wait in Kafka, in all and per topic", _kafka_lag),
    "offset_checker": Table("How far each partition has been read, and by which worker", _offset_checker),
    "block_size": Table("How many messages wait in the storage", _block_size),
    "member_leader": Table("The leader of the consumer group, and its members", _member_leader),
    "metadata_brokers": Table("The Kafka brokers", _metadata_brokers),
    "metadata_topics": Table("Leader and replicas of each partition", _metadata_topics),
    "workers": Table("What each worker is doing", _workers, _workers_wide),
    "ping": Table("The processes that answer", _ping),
    "describe": Table("Which methods are served", _describe),
}
