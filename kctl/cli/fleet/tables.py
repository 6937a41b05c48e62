"""Formats the answers of `kctl rpc`, and compares their values with `--fail-above`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from kctl.cli.fleet.ask import OLD_SECONDS
from kctl.cli.fleet.worker_table import RPC, RPC_WIDE, worker_table
from kctl.cli.table import Column, cell, clip, columns, duration, ranges, render, render_columns
from kctl.errors import IncompleteAnswer, ThresholdExceeded
from kctl.fields import host_and_name
from kctl.rpc.decode import answered
from kctl_agent.replies.questions import QUESTIONS, named

if TYPE_CHECKING:
    from kctl.rows.partitions import LagTotals, Offsets
    from kctl.rows.workers import GroupMembers, Pings, Workers
    from kctl_agent.replies.block_size import StorageReply
    from kctl_agent.replies.describe import MethodsReply
    from kctl_agent.replies.fields import TopicPartition


def compact_partitions(partitions: Iterable[TopicPartition], longest: float = inf) -> str:
    """Formats partitions as `orders[0-3,6] payments[1]`. If a topic's list is longer than `longest` characters,
    shows the number of partitions: `orders[500 partitions]`."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return " ".join(
        f"{topic}[{text if len(text := ranges(numbers, shortest=2)) <= longest else f'{len(numbers)} partitions'}]"
        for topic, numbers in sorted(topics.items())
    )


def kafka_lag(lag: LagTotals) -> list[str]:
    rows = [("total", lag.total), *sorted(lag.topics.items())]
    lines = render(columns("topic >lag"), rows)
    if lag.behind_transaction:
        lines.append(f"behind open transactions: {lag.behind_transaction}")
    if lag.unknown:
        lines.append(f"unknown: {compact_partitions(lag.unknown)}")
    return lines


def offset_checker(offsets: Offsets) -> list[str]:
    rows = offsets.rows
    names = ("topic", "partition", "current_offset", "kafka_max_offset", "remaining_count", "worker")
    shown, values = _columns(rows, *names)
    if any(map(attrgetter("behind_transaction"), rows)):
        shown.append(Column("behind-transaction", is_number=True))
        values.append([row.behind_transaction for row in rows])
    if max(filter(None, map(attrgetter("age_seconds"), rows)), default=0.0) > OLD_SECONDS:
        shown.append(Column("age", is_number=True))
        values.append([duration(row.age_seconds) for row in rows])
    return render_columns(shown, values)


def _columns(rows: Sequence[Any], *names: str) -> tuple[list[Column], list[list[Any]]]:
    types = type(rows[0]).__annotations__ if rows else {}
    shown = [Column(name.replace("_", "-"), _is_number(types.get(name))) for name in names]
    # By column instead of by row, which is fast for 100,000 rows.
    values = [list(map(attrgetter(name), rows)) for name in names]
    number = next((number for number, name in enumerate(names) if name in ("worker", "name")), None)
    if number is not None and any("/" in each for each in set(values[number]) if each):
        parts = [host_and_name(each or "") for each in values[number]]
        shown.insert(number, Column("host"))
        values[number : number + 1] = [[part or None for part in column] for column in zip(*parts, strict=True)]
    return shown, values


def _is_number(kind: object) -> bool:
    return re.search(r"\b(int|float)\b", str(kind)) is not None and "tuple" not in str(kind)


def _rows(rows: Sequence[Any], *names: str) -> list[str]:
    return render_columns(*_columns(rows, *names))


def block_size(storage: StorageReply) -> list[str]:
    lines = _rows([storage], "pending", "delayed", "processing", "dead", "bytes", "limit")
    return [*lines, f"full: {cell(storage.full)}"] if storage.full else lines


def member_leader_wide(group: GroupMembers) -> list[str]:
    return member_leader(group, inf)


def member_leader(group: GroupMembers, longest: float = 60) -> list[str]:
    lines = [f"leader: {cell(group.leader)}"]
    if not group.agreed:
        generations = sorted({each.generation for each in group.members if each.generation is not None})
        lines.append(f"the members do not agree; generations: {cell(generations)}")
    rows = [
        (each.worker, each.member_id, each.is_leader, each.generation, compact_partitions(each.partitions, longest))
        for each in group.members
    ]
    return [*lines, *render(columns("worker member-id leader >generation partitions"), rows)]


def listed(reply: Any) -> list[str]:
    """Formats the rows of a reply as a table with a column for each field."""
    row_type, _ = get_args(get_type_hints(type(reply))["rows"])
    columns, values = _columns(reply.rows, *(each.name for each in fields(row_type)))
    return render_columns(columns, [[None if value == () else value for value in each] for each in values])


def workers(workers: Workers) -> list[str]:
    """Formats the table of workers. Cuts lines at 120 columns."""
    return [clip(line, 120) for line in worker_table(workers.rows, RPC)]


def workers_wide(workers: Workers) -> list[str]:
    return worker_table(workers.rows, RPC_WIDE)


def ping(pings: Pings) -> list[str]:
    return _rows(pings.rows, "name", "pid", "version")


def describe(described: MethodsReply) -> list[str]:
    return _rows(described.methods, "method", "rpc", "changes", "deadline_ms", "summary")


def total_lag(lag: LagTotals) -> list[int | None]:
    return [lag.total, *([None] if lag.unknown else [])]


def remaining_counts(offsets: Offsets) -> list[int | None]:
    return [row.remaining_count for row in offsets.rows]


def pending(storage: StorageReply) -> list[int | None]:
    return [storage.pending]


def read(command: str, result: Any) -> Any:
    return answered(command, named(QUESTIONS[command].sent), result)


class View(NamedTuple):
    lines: Callable[[Any], list[str]] = listed
    wide: Callable[[Any], list[str]] | None = None  # the lines for `-o wide`, if different
    compared: str = ""
    """What `--fail-above` compares, in words; empty if it does not support the command."""
    values: Callable[[Any], list[int | None]] = lambda _: []
    """The values that `--fail-above` compares."""


VIEWS = {
    "kafka_lag": View(kafka_lag, None, "the total lag", total_lag),
    "offset_checker": View(offset_checker, None, "the highest remaining-count", remaining_counts),
    "block_size": View(block_size, None, "the number of pending messages", pending),
    "member_leader": View(member_leader, member_leader_wide),
    "workers": View(workers, workers_wide),
    "ping": View(ping),
    "describe": View(describe),
}
"""Answers that are not printed with every field of a row as a column."""


def lines_of(command: str, result: Any, *, is_wide: bool = False) -> list[str]:
    view = VIEWS.get(command, View())
    return ((is_wide and view.wide) or view.lines)(result)


def check(command: str, result: Any, limit: int) -> None:
    """Compares a command's result with `--fail-above`. Raises ThresholdExceeded if a value is above `limit`. Otherwise
    raises IncompleteAnswer if a value is unknown, or if there is no value."""
    what, values = VIEWS[command].compared, VIEWS[command].values(result)
    highest = max((value for value in values if value is not None), default=None)
    if highest is not None and highest > limit:
        raise ThresholdExceeded(f"{what} is {highest}, above {limit}")
    if highest is None or None in values:
        raise IncompleteAnswer(f"it is unknown whether {what} is above {limit}: some values are unknown")
