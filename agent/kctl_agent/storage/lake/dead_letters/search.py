"""Searches dead letters in their table. The table's rows are not sorted. To return the oldest first, `next_rows` sorts
the columns `PLACE` of all matching rows. Then it reads the other columns of one page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kctl_agent.errors import BadParams, StorageError
from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import given_up
from kctl_agent.storage.base import Progress
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.lake.dead_letters.selection import (
    NUMBER,
    READING,
    TRIES,
    Condition,
    failed_between,
    of_cluster,
    quoted,
)
from kctl_agent.storage.selection import Selection

COORDINATES = ["topic", "partition", "offset"]
PLACE = ["failed_at", *COORDINATES, READING]
CONDITIONS = frozenset({"group", "cluster", *COORDINATES, "failed_at", NUMBER, READING})
OTHERS = ["error", TRIES, "timestamp", "cluster"]
PAYLOAD = ["key", "value", "headers"]
LATEST_MICROSECONDS = 1 << 62
MOST_ROWS = 10_000


class Origin(NamedTuple):
    """The file of a dead letter's row, and columns that identify the row."""

    file: str
    cluster: str | None  # a group may have equal offsets in two clusters
    reading: str
    topic: str
    partition: int
    offset: int
    failed_at: int


class RowPlace(NamedTuple):
    failed_at: int
    topic: str
    partition: int
    offset: int
    reading: str

    @classmethod
    def parsed(cls, text: str) -> RowPlace:
        with suppress(ValueError):
            failed_at, topic, partition, offset, reading = text.split("/", 4)
            numbers = int(failed_at), int(partition), int(offset)
            if all(0 <= number < 2**63 for number in numbers):
                return cls(numbers[0], topic, *numbers[1:], reading)
        raise BadParams("after: not the `next` of a former page")

    def __str__(self) -> str:
        return "/".join(map(str, self))


def next_rows(
    table: DeltaTable, wanted: Condition, after: RowPlace | None, limit: int
) -> list[tuple[RowPlace, DeadLetter]]:
    if after is not None:
        wanted &= failed_between(after.failed_at, LATEST_MICROSECONDS)
    found = _plain(read(table, PLACE, wanted))
    if after is not None:
        found = found.filter(_behind(after))
    places = [RowPlace(**row) for row in found.sort_by([(name, "ascending") for name in PLACE])[:limit].to_pylist()]
    if not places:
        return []
    wanted &= failed_between(places[0].failed_at, places[-1].failed_at)
    offsets = pa.array(sorted({each.offset for each in places}), pa.int64())
    rows: dict[RowPlace, DeadLetter | None] = dict.fromkeys(places)
    for part in batches(table, [*PLACE, *OTHERS, *PAYLOAD], wanted):
        near = _plain(part.filter(pc.is_in(part["offset"], offsets)))
        for row in near.to_pylist():
            if (place := RowPlace(*(row[name] for name in PLACE))) in rows:
                rows[place] = _dead_letter(row)
    return [(place, each) for place, each in rows.items() if each is not None]


def all_rows(
    table: DeltaTable, wanted: Condition, selection: Selection, progress: Progress, *, with_payload: bool = False
) -> Iterator[tuple[Origin, DeadLetter]]:
    """Yields the matching rows file by file, in parts of a file. Within a part, the oldest row comes first."""
    payload = PAYLOAD if with_payload or selection.key is not None or selection.text is not None else []
    for file, part in parts(table, [*PLACE, *OTHERS, *payload], wanted):
        progress(0)
        for row in _plain(part).sort_by([(name, "ascending") for name in PLACE]).to_pylist():
            dead_letter = _dead_letter({**dict.fromkeys(PAYLOAD), **row})
            if selection.takes_dead_letter(dead_letter):
                yield Origin(file, *(row[name] for name in Origin._fields[1:])), dead_letter


def of_rows(rows: Sequence[Origin]) -> str:
    if len(rows) > MOST_ROWS:
        raise StorageError(
            f"more than {MOST_ROWS} dead letters of a table match a filter with more than topic, partition, offsets "
            "and times: choose fewer at a time, for example by times; nothing was changed"
        )
    offsets: dict[tuple[str, int, str, str | None], list[int]] = defaultdict(list)
    for each in rows:
        offsets[each.topic, each.partition, each.reading, each.cluster].append(each.offset)
    alternatives = (
        f'"topic" = {quoted(topic)} and "partition" = {partition} and "offset" in ({", ".join(map(str, those))}) and '
        f"coalesce(\"{READING}\", '') = {quoted(reading)} and {of_cluster(cluster).sql}"
        for (topic, partition, reading, cluster), those in offsets.items()
    )
    if not rows:
        return "false"
    times = [each.failed_at for each in rows]  # so that delta-rs skips other files
    return f"{failed_between(min(times), max(times)).sql} and ({' or '.join(f'({each})' for each in alternatives)})"


def read(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> pa.Table:
    return pa.concat_tables(batches(table, columns, wanted))


def batches(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> Iterator[pa.Table]:
    schema = table.to_pyarrow_dataset().schema
    yield pa.schema([schema.field(name) for name in columns]).empty_table()
    for _, rows in parts(table, columns, wanted):
        yield rows


def parts(table: DeltaTable, columns: Sequence[str], wanted: Condition) -> Iterator[tuple[str, pa.Table]]:
    """Yields the matching rows of each file in parts, the file with the oldest row first. Uses pyarrow, because a
    delta-rs query holds the GIL and blocks the whole process while an object store does not answer."""
    try:
        dataset = table.to_pyarrow_dataset()
        of_condition = [name for name in dataset.schema.names if name in CONDITIONS]
        columns = list(columns)
        actions = table.get_add_actions(flatten=True)
        known = [name for name in ("path", "min.failed_at") if name in actions.schema.names]
        began = dict(zip(*(actions.column(name).to_pylist() for name in known), strict=True)) if known[1:] else {}
        for file in sorted(dataset.get_fragments(filter=wanted.files), key=lambda each: str(began.get(each.path))):
            # The scan cannot filter: it would compare statistics of files with delta-rs' type `string_view`.
            for rows in file.to_batches(schema=dataset.schema, columns=list({*of_condition, *columns})):
                yield file.path, pa.Table.from_batches([rows]).filter(wanted.rows).select(columns)
    except pa.ArrowException as error:  # a damaged file, or one of another type
        raise OSError(5, str(error)) from error


def _behind(after: RowPlace) -> pc.Expression:
    condition = pc.scalar(False)
    for name, value in zip(reversed(PLACE), reversed(after), strict=True):
        condition = (pc.field(name) > value) | ((pc.field(name) == value) & condition)
    return condition


def _plain(rows: pa.Table) -> pa.Table:
    rows = rows.set_column(rows.schema.get_field_index(READING), READING, pc.fill_null(rows[READING], ""))
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):  # to a number: Python has no dates after year 9999
            at = rows.column(number).cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            rows = rows.set_column(number, column.name, at)
    return rows


def _dead_letter(row: dict[str, Any]) -> DeadLetter:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    known = row["topic"], row["partition"], row["offset"], row["key"], row["value"]
    message = Message(*known, row["timestamp"] // 1000, headers, row[TRIES])
    [found] = given_up([message], row["error"], None, "none", row["failed_at"] / 1e6)
    return replace(found, id=f"{message.topic}:{message.partition}:{message.offset}")
