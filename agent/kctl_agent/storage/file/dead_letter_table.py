"""Dead letters of a file storage, on a connection that is given."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Iterable

from kctl_agent.storage.block import Block
from kctl_agent.storage.claim import DeadLetter, Selection
from kctl_agent.storage.file.schema import transaction
from kctl_agent.storage.file.selection import condition

__all__ = ["clear", "delete", "expire", "find", "insert", "page"]

PAGE_SIZE = 1000
EXPIRE_PAGE = 500
PAGE_BYTES = 16 << 20
COLUMNS = "id, topic, topic_id, partition, first, last, count, body, tries, error, at, damaged"


def insert(db: sqlite3.Connection, dead_letters: Collection[DeadLetter]) -> None:
    """New ones, in the place of those that there were of the same messages. Within a transaction of the caller."""
    db.executemany(
        "delete from dead where topic=? and partition=? and first=? and last=? and topic_id is ?",
        ((b.topic, b.partition, b.first, b.last, b.topic_id) for b in (x.block for x in dead_letters)),
    )
    db.executemany(
        "insert into dead(topic, topic_id, partition, first, last, count, bytes, tries, error, at, damaged, body)"
        " values (?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            (b.topic, b.topic_id, b.partition, b.first, b.last, b.count, len(b.body), x.tries, x.error, x.at,
             x.is_damaged, b.body)
            for x in dead_letters
            for b in (x.block,)
        ),
    )  # fmt: skip


def delete(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Within a transaction of the caller."""
    db.executemany("delete from dead where id=?", [(int(id_),) for id_ in ids])


def page(
    db: sqlite3.Connection, selection: Selection, wall: float, after: int, limit: int = PAGE_SIZE
) -> list[DeadLetter]:
    """The next selected ones after an id: so many, or fewer that hold `PAGE_BYTES` together."""
    where, values = condition(selection, "at", wall)
    rows = db.execute(
        f"select {COLUMNS} from dead where id>? and {where} order by id limit ?",  # noqa: S608
        (after, *values, limit),
    )
    found: list[DeadLetter] = []
    size = 0
    for row in rows:
        found.append(_dead_letter(row))
        size += len(found[-1].block.body)
        if size >= PAGE_BYTES:
            break
    return found


def find(db: sqlite3.Connection, id_: int) -> DeadLetter | None:
    row = db.execute(f"select {COLUMNS} from dead where id=?", (id_,)).fetchone()  # noqa: S608
    return None if row is None else _dead_letter(row)


def clear(db: sqlite3.Connection, selection: Selection, wall: float) -> int:
    """Messages removed."""
    where, values = condition(selection, "at", wall)
    with transaction(db):
        rows = db.execute(f"delete from dead where {where} returning count", values).fetchall()  # noqa: S608
    return sum(count for (count,) in rows)


def expire(db: sqlite3.Connection, before: float) -> int:
    """Remove the oldest of before that time, a page at most; returns the number of messages. Reads the oldest only,
    without the write lock: dead letters are numbered as they die."""
    rows = db.execute("select id, at from dead order by id limit ?", (EXPIRE_PAGE,)).fetchall()
    old = [id_ for id_, _ in itertools.takewhile(lambda row: row[1] <= before, rows)]
    if not old:
        return 0
    with transaction(db):
        gone = db.execute("delete from dead where id<=? returning count", (old[-1],)).fetchall()
    return sum(count for (count,) in gone)


def _dead_letter(row: tuple[object, ...]) -> DeadLetter:
    id_, *coordinates, tries, error, at, damaged = row
    return DeadLetter(str(id_), Block(*coordinates), tries, error, at, bool(damaged))  # type: ignore[arg-type]
