"""Selections of dead letters, as SQL for delta-rs and as expressions for pyarrow. Pure."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc

from kctl_agent.storage.selection import Selection, is_id_number

NUMBER = "requeue"  # the column with the number of a request to requeue
TRIES = "tries"
READING = "reading"  # the column with the result of `reading`
OF_COLUMNS = {"topic", "partition", "offset_from", "offset_to", "died_from", "died_to"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_SECONDS = 253_402_300_799.0  # the end of year 9999, and of Python's time
OPERATORS = {"=": operator.eq, "<=": operator.le, ">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class Condition:
    sql: str
    rows: pc.Expression
    files: pc.Expression  # the condition on a file's statistics, before its rows are read

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"{self.sql} and {other.sql}", self.rows & other.rows, self.files & other.files)


def than(column: str, is_: str, value: str | int | datetime) -> Condition:
    text = value.isoformat() if isinstance(value, datetime) else value
    sql = f'"{column}" {is_} {quoted(text) if isinstance(text, str) else text}'
    expression = OPERATORS[is_](pc.field(column), value)
    return Condition(sql, expression, expression)


def is_null(column: str) -> Condition:
    # A file without the column has no count of its nulls, and delta-rs reads that as 0.
    return Condition(f'"{column}" is null', pc.field(column).is_null(), pc.scalar(True))


def predicate(group: str, selection: Selection) -> Condition:
    wanted: list[tuple[str, str, Any]] = [
        ("topic", "=", selection.topic),
        ("partition", "=", selection.partition),
        ("offset", ">=", selection.offset_from),
        ("offset", "<=", selection.offset_to),
        ("failed_at", ">=", None if selection.died_from is None else _moment(selection.died_from)),
        ("failed_at", "<=", None if selection.died_to is None else _moment(selection.died_to)),
    ]
    numbers = [id_.rpartition(":")[2] for id_ in selection.ids or ()]
    if offsets := [int(each) for each in numbers if is_id_number(each)]:
        wanted += [("offset", ">=", min(offsets)), ("offset", "<=", max(offsets))]
    condition = than("group", "=", group)
    for column, is_, value in wanted:
        if value is not None:
            condition &= than(column, is_, value)
    return condition


def failed_between(first: int, last: int) -> Condition:
    return than("failed_at", ">=", _moment(first / 1e6 - 1)) & than("failed_at", "<=", _moment(last / 1e6 + 1))


def needs_rows(selection: Selection) -> bool:
    return not set(selection.named) <= OF_COLUMNS


def reading(table_id: str, version: int) -> str:
    """Returns the id of one reading of a partition. `version` is the stored offset's. A seek or a recreated topic
    begins a new reading, which may repeat offsets."""
    return f"{table_id}/{version}"


def of_cluster(cluster_id: str | None) -> Condition:
    return is_null("cluster") if cluster_id is None else than("cluster", "=", cluster_id)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=min(max(seconds, 0.0), LATEST_SECONDS))
