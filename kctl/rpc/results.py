"""The edge: an agent's reply to each command as typed rows, once; what does not fit is failed `bad_result` here.

An attached agent may send anything, and a newer one more than is known here: further fields are ignored, an absent
field is unknown (None). The message of a failure names the field, never what the agent sent. Pure, safe in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from math import inf
from operator import itemgetter
from types import NoneType
from typing import Any, TypeAlias, TypeVar

from kctl.reduce.base import Answer
from kctl.reduce.rows import (
    AgentState,
    BrokerRow,
    EventRow,
    MemberRow,
    MethodRow,
    PartitionRow,
    PauseRow,
    PingRow,
    SinkerStats,
    StorageRow,
    TopicPartition,
    TopicRow,
    UnreadRow,
    WorkerRow,
)
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.wire import JsonObject

__all__ = [
    "BadResult",
    "Parser",
    "brokers",
    "member",
    "methods",
    "parsed",
    "partitions",
    "ping",
    "storage",
    "topics",
    "worker",
]

R = TypeVar("R")
Parser: TypeAlias = Callable[[str, JsonObject], R]
"""From the sender's name and its result to a row or rows.

Raises:
    BadResult: a field is missing or wrong.
"""

_MOST = 2**62
"""Offsets are 64 bits wide, and so is what is kept of them and of their differences."""
_STATES = {state.value: state for state in AgentState}


class BadResult(ValueError):
    """A result that does not have the shape of its command; the message names the field."""


def parsed(parse: Parser[R], outcome: FanOut[JsonObject]) -> FanOut[R]:
    """`outcome` with its answers as rows; whose result does not fit is among the failed, with the code `bad_result`."""
    answers: list[Answer[R]] = []
    failed: list[Failed] = []
    for answer in outcome.answers:
        try:
            answers.append(Answer(answer.sender, parse(answer.sender, answer.result), answer.age_seconds))
        except BadResult as error:
            failed.append(
                Failed(answer.sender, "bad_result", f"its reply does not have the shape of this command: {error}")
            )
    if failed:
        failed = sorted([*outcome.failed, *failed], key=lambda each: each.sender)
    return FanOut(answers, failed or outcome.failed, outcome.stopped)


def ping(sender: str, result: JsonObject) -> PingRow:
    return PingRow(
        name=sender,
        pid=_required(_whole(result, "pid"), "pid"),
        version=_text(result, "version"),
        state=_state(result),
        batches_total=_whole(result, "batches_total"),
        lag=_whole(result, "lag"),
        progress=_whole(result, "progress"),
        main_thread_age_seconds=_number(result, "main_thread_age_seconds"),
    )


def worker(sender: str, result: JsonObject) -> WorkerRow:
    return WorkerRow(
        name=sender,
        kind=_text(result, "kind"),
        state=_state(result),
        state_seconds=_number(result, "state_seconds"),
        pid=_whole(result, "pid"),
        uptime_seconds=_number(result, "uptime_seconds"),
        rss_bytes=_whole(result, "rss_bytes"),
        query_id=_text(result, "query_id"),
        batch_id=_whole(result, "batch_id"),
        last_batch_seconds=_number(result, "last_batch_seconds"),
        last_batch_rows=_whole(result, "last_batch_rows"),
        rows_per_second=_number(result, "rows_per_second"),
        batch_running_seconds=_number(result, "batch_running_seconds"),
        rows_total=_count(result, "rows_total"),
        batches_total=_count(result, "batches_total"),
        queries_failed=_count(result, "queries_failed"),
        last_error=_text(result, "last_error"),
        left_out=_unread(result, "left_out"),
        isolated=_unread(result, "isolated"),
        paused=_pauses(result),
        events=tuple(_event(each) for each in _objects(result, "events") or ()),
        sinker=_sinker(result),
    )


def storage(_sender: str, result: JsonObject) -> StorageRow:
    return StorageRow(
        storage=_text(result, "storage"),
        pending=_whole(result, "pending"),
        delayed=_whole(result, "delayed"),
        processing=_whole(result, "processing"),
        dead=_whole(result, "dead"),
        bytes=_whole(result, "bytes"),
        limit=_whole(result, "limit"),
        limit_bytes=_whole(result, "limit_bytes"),
        dead_limit=_whole(result, "dead_limit"),
        free_bytes=_whole(result, "free_bytes"),
        full=_text(result, "full"),
    )


def member(sender: str, result: JsonObject) -> MemberRow:
    return MemberRow(
        member_id=_text(result, "member_id"),
        worker=sender,
        is_leader=_flag(result, "is_leader"),
        generation=_whole(result, "generation"),
        leader=_text(result, "leader"),
        partitions=tuple(_partition_of(each) for each in _objects(result, "partitions") or ()),
    )


def brokers(_sender: str, result: JsonObject) -> tuple[BrokerRow, ...]:
    return tuple(
        BrokerRow(
            node_id=_required(_whole(row, "node_id"), "node_id"),
            host=_text(row, "host"),
            port=_whole(row, "port"),
            rack=_text(row, "rack"),
            controller=_flag(row, "controller"),
        )
        for row in _objects(result, "rows") or ()
    )


def topics(_sender: str, result: JsonObject) -> tuple[TopicRow, ...]:
    return tuple(
        TopicRow(
            *_partition_of(row),
            leader_id=_whole(row, "leader_id"),
            replica_nodes=_nodes(row, "replica_nodes"),
            isr_nodes=_nodes(row, "isr_nodes"),
            offline=_nodes(row, "offline"),
        )
        for row in _objects(result, "rows") or ()
    )


def methods(_sender: str, result: JsonObject) -> tuple[MethodRow, ...]:
    return tuple(
        MethodRow(
            method=_required(_text(row, "method"), "method"),
            rpc=_text(row, "rpc"),
            summary=_text(row, "summary"),
            params=tuple(_objects(row, "params") or ()),
            deadline_ms=_whole(row, "deadline_ms"),
            changes=_flag(row, "changes"),
        )
        for row in _objects(result, "methods") or ()
    )


_WHOLE: frozenset[type] = frozenset({int})
_WHOLE_OR_NONE: frozenset[type] = frozenset({int, NoneType})
_NUMBER_OR_NONE: frozenset[type] = frozenset({int, float, NoneType})
_COLUMNS: dict[str, tuple[frozenset[type], str]] = {
    "topic": (frozenset({str}), "a text"),
    "partition": (_WHOLE, "a whole number"),
    "start": (_WHOLE_OR_NONE, "a whole number"),
    "committed": (_WHOLE_OR_NONE, "a whole number"),
    "position": (_WHOLE_OR_NONE, "a whole number"),
    "end": (_WHOLE_OR_NONE, "a whole number"),
    "last_timestamp": (_NUMBER_OR_NONE, "a number"),
    "generation": (_WHOLE_OR_NONE, "a whole number"),
    "age_seconds": (_NUMBER_OR_NONE, "a number"),
}
_columns_of = itemgetter(*_COLUMNS)
_row_of: Callable[[tuple[Any, ...]], PartitionRow] = partial(tuple.__new__, PartitionRow)
"""Without a step in Python: there may be a hundred thousand."""


def partitions(sender: str, result: JsonObject) -> tuple[PartitionRow, ...]:
    """The rows of `kafka_lag` and `offset_checker`. They come by the thousand, so they are checked column by column."""
    rows = result.get("rows")
    if not rows and rows in (None, []):
        return ()
    if type(rows) is not list:
        raise BadResult('"rows" is not a list')
    try:
        columns = list(zip(*map(_columns_of, rows), strict=True))
    except (KeyError, TypeError):
        absent: JsonObject = dict.fromkeys(_COLUMNS)
        columns = list(zip(*(_columns_of({**absent, **_object(row, "rows")}) for row in rows), strict=True))
    for (name, (types, wanted)), column in zip(_COLUMNS.items(), columns, strict=True):
        if not types.issuperset(map(type, column)) or not _is_in_range(column):
            raise BadResult(f'"{name}" of a row is not {wanted}')
    topic, partition, start, committed, position, end, timestamp, generation, age = columns
    ages = [inf if each is None else each for each in age]
    sent = (topic, partition, start, committed, position, end, timestamp, repeat(sender), generation, ages)
    return tuple(map(_row_of, zip(*sent, repeat(PartitionRow._field_defaults["reset"]))))


def _is_in_range(column: Sequence[Any]) -> bool:
    if type(column[0]) is str:
        return True
    numbers = [each for each in column if each is not None]
    return not numbers or (min(numbers) > -_MOST and max(numbers) < _MOST)


def _partition_of(row: JsonObject) -> TopicPartition:
    topic, partition = row.get("topic"), row.get("partition")
    if type(topic) is not str:
        raise BadResult('"topic" is not a text')
    if type(partition) is not int or not -_MOST < partition < _MOST:
        raise BadResult('"partition" is not a whole number')
    return TopicPartition(topic, partition)


def _required(value: R | None, name: str) -> R:
    if value is None:
        raise BadResult(f'"{name}" is missing')
    return value


def _text(row: JsonObject, name: str) -> str | None:
    value = row.get(name)
    if value is None or type(value) is str:
        return value
    raise BadResult(f'"{name}" is not a text')


def _whole(row: JsonObject, name: str) -> int | None:
    value = row.get(name)
    if value is None or (type(value) is int and -_MOST < value < _MOST):
        return value
    raise BadResult(f'"{name}" is not a whole number')


def _count(row: JsonObject, name: str) -> int | None:
    value = _whole(row, name)
    if value is None or value >= 0:
        return value
    raise BadResult(f'"{name}" is below 0')


def _number(row: JsonObject, name: str) -> float | None:
    value = row.get(name)
    if value is None or (type(value) in (int, float) and -_MOST < value < _MOST):
        return value
    raise BadResult(f'"{name}" is not a number')


def _flag(row: JsonObject, name: str) -> bool | None:
    value = row.get(name)
    if value is None or type(value) is bool:
        return value
    raise BadResult(f'"{name}" is neither true nor false')


def _state(row: JsonObject) -> AgentState | None:
    """None too for one of a newer release, which is not known here."""
    return _STATES.get(_text(row, "state") or "")


def _object(value: object, name: str) -> JsonObject:
    if isinstance(value, dict):
        return value
    raise BadResult(f'"{name}" holds something else than objects')


def _objects(row: JsonObject, name: str) -> Iterable[JsonObject] | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not list:
        raise BadResult(f'"{name}" is not a list')
    return [_object(each, name) for each in value]


def _nodes(row: JsonObject, name: str) -> tuple[int, ...] | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not list or not _WHOLE.issuperset(map(type, value)):
        raise BadResult(f'"{name}" is not a list of whole numbers')
    return tuple(value)


def _unread(row: JsonObject, name: str) -> tuple[UnreadRow, ...] | None:
    objects = _objects(row, name)
    return None if objects is None else tuple(UnreadRow(*_partition_of(each), _text(each, "why")) for each in objects)


def _pauses(row: JsonObject) -> tuple[PauseRow, ...] | None:
    objects = _objects(row, "paused")
    if objects is None:
        return None
    return tuple(
        PauseRow(_text(each, "topic"), _whole(each, "partition"), _text(each, "by"), _number(each, "since"))
        for each in objects
    )


def _event(row: JsonObject) -> EventRow:
    return EventRow(
        at=_required(_number(row, "at"), "at"),
        kind=_required(_text(row, "kind"), "kind"),
        text=_required(_text(row, "text"), "text"),
        topic=_text(row, "topic"),
        partition=_whole(row, "partition"),
        from_offset=_whole(row, "from"),
        to_offset=_whole(row, "to"),
    )


def _sinker(row: JsonObject) -> SinkerStats | None:
    value = row.get("sinker")
    if value is None:
        return None
    stats = _object(value, "sinker")
    return SinkerStats(
        handled=_count(stats, "handled"),
        retried=_count(stats, "retried"),
        dead=_count(stats, "dead"),
        lost=_count(stats, "lost"),
        in_flight=_whole(stats, "in_flight"),
        handler_errors=_count(stats, "handler_errors"),
        handler_p50_seconds=_number(stats, "handler_p50_seconds"),
        handler_p99_seconds=_number(stats, "handler_p99_seconds"),
    )
