"""Dead letters, requeue, clear and figures of a file storage, on a connection that is given."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable

from kctl_agent.storage.ack_rules import requeued
from kctl_agent.storage.block import Block
from kctl_agent.storage.claim import DeadLetter, PartitionStats, Selection
from kctl_agent.storage.file_schema import FREE_COUNTED, transaction

__all__ = ["clear", "expire", "find", "insert", "insert_dead", "page", "partitions", "requeue_dead", "requeue_stuck"]

PAGE_SIZE = 1000
EXPIRE_PAGE = 500
PAGE_BYTES = 16 << 20
COLUMNS = "id, topic, topic_id, partition, first, last, count, body, tries, error, at, damaged"


def insert(db: sqlite3.Connection, blocks: Iterable[Block], wall: float) -> int:
    """New blocks, pending; returns their bytes. Within a transaction of the caller."""
    written, first = 0, None
    for block in blocks:
        size = len(block.body)
        row = db.execute(
            "insert into block(topic, topic_id, partition, first, last, count, bytes, body) values (?,?,?,?,?,?,?,?)",
            (block.topic, block.topic_id, block.partition, block.first, block.last, block.count, size, block.body),
        )
        first = first or row.lastrowid
        written += size
    # All in one: of each page that a statement with triggers changes SQLite keeps a copy until its end.
    db.execute(
        "insert into turn(id, topic, partition, count, bytes, state, since)"
        " select id, topic, partition, count, bytes, 'pending', ? from block where id>=?",
        (wall, first),
    )
    return written


def insert_dead(db: sqlite3.Connection, dead_letters: Iterable[DeadLetter]) -> None:
    """New dead letters. Within a transaction of the caller."""
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


def page(
    db: sqlite3.Connection, selection: Selection, wall: float, after: int, limit: int = PAGE_SIZE
) -> list[DeadLetter]:
    """The next selected dead letters after an id: so many, or fewer that hold `PAGE_BYTES` together."""
    where, values = _where(selection, "at", wall)
    rows = db.execute(
        f"select {COLUMNS} from dead where id>? and {where} order by id limit ?",  # noqa: S608
        (after, *values, limit),
    )
    dead_letters: list[DeadLetter] = []
    size = 0
    for row in rows:
        dead_letters.append(_dead_letter(row))
        size += len(dead_letters[-1].block.body)
        if size >= PAGE_BYTES:
            break
    return dead_letters


def find(db: sqlite3.Connection, id_: int) -> DeadLetter | None:
    row = db.execute(f"select {COLUMNS} from dead where id=?", (id_,)).fetchone()  # noqa: S608
    return None if row is None else _dead_letter(row)


def requeue_dead(
    db: sqlite3.Connection,
    selection: Selection,
    wall: float,
    after: int,
    block_messages: int,
    block_bytes: int,
    codec: str,
) -> tuple[int, int | None]:
    """One page of it, one transaction: how many messages returned, and after which id to go on (None: at the end)."""
    with transaction(db):
        dead_letters = page(db, selection, wall, after)
        blocks, ids = requeued(dead_letters, block_messages, block_bytes, codec)
        insert(db, blocks, wall)
        db.executemany("delete from dead where id=?", [(int(id_),) for id_ in ids])
    return len(ids), int(dead_letters[-1].id) if dead_letters else None


def requeue_stuck(db: sqlite3.Connection, selection: Selection, now: float) -> int:
    where, values = _where(selection, None, now)
    age = selection.older_than_seconds
    with transaction(db):
        rows = db.execute(
            f"update turn set {FREE_COUNTED}"  # noqa: S608
            " where (state='delayed' or (state='processing' and (until<=? or leased_at<=?)))"
            f" and id in (select id from block where {where}) returning count",
            (now, -1.0 if age is None else now - age, *values),
        ).fetchall()
    return sum(count for (count,) in rows)


def clear(db: sqlite3.Connection, state: str, selection: Selection, wall: float) -> int:
    with transaction(db):
        if state == "dead":
            where, values = _where(selection, "at", wall)
            rows = db.execute(f"delete from dead where {where} returning count", values).fetchall()  # noqa: S608
        else:
            where, values = _where(selection, None, wall)
            age = selection.older_than_seconds
            rows = db.execute(
                "delete from turn where state in ('pending', 'delayed') and since<=?"  # noqa: S608
                f" and id in (select id from block where {where}) returning count",
                (wall if age is None else wall - age, *values),
            ).fetchall()
            db.execute("delete from block where id not in (select id from turn)")
    return sum(count for (count,) in rows)


def expire(db: sqlite3.Connection, before: float) -> int:
    """Remove the oldest dead letters of before that time, a page at most; returns the number of messages. Looks at the
    oldest only, without the write lock: dead letters are numbered as they die."""
    rows = db.execute("select id, at from dead order by id limit ?", (EXPIRE_PAGE,)).fetchall()
    old = [id_ for id_, _ in itertools.takewhile(lambda row: row[1] <= before, rows)]
    if not old:
        return 0
    with transaction(db):
        gone = db.execute("delete from dead where id<=? returning count", (old[-1],)).fetchall()
    return sum(count for (count,) in gone)


def partitions(db: sqlite3.Connection, wall: float) -> tuple[PartitionStats, ...]:
    found: dict[tuple[str, int], PartitionStats] = {}
    for topic, partition, state, messages, size in db.execute(
        "select topic, partition, state, messages, bytes from tally where messages>0 order by topic, partition"
    ):
        tp = (topic, partition)
        found[tp] = found.get(tp, PartitionStats(*tp)).plus(state, messages, size)
    for topic, partition, since in db.execute(
        "select topic, partition,"
        " (select since from turn where topic=t.topic and partition=t.partition order by id limit 1)"
        " from (select distinct topic, partition from tally where messages>0 and state<>'dead') t"
    ):
        tp = (topic, partition)
        if tp in found and since is not None:  # somebody may have settled it between the two
            found[tp] = found[tp].plus("pending", 0, 0, max(wall - since, 0.0))
    return tuple(found.values())


def _where(selection: Selection, at: str | None, wall: float) -> tuple[str, list[object]]:
    """A condition on topic, partition, first, last, and on the column `at` if one is given."""
    clauses: list[tuple[str, object]] = [("1=?", 1)]
    for clause, value in (
        ("topic=?", selection.topic),
        ("partition=?", selection.partition),
        ("last>=?", selection.offset_from),
        ("first<=?", selection.offset_to),
    ):
        if value is not None:
            clauses.append((clause, value))
    if at is not None and selection.older_than_seconds is not None:
        clauses.append((f"{at}<=?", wall - selection.older_than_seconds))
    return " and ".join(clause for clause, _ in clauses), [value for _, value in clauses]


def _dead_letter(row: tuple[object, ...]) -> DeadLetter:
    id_, *coordinates, tries, error, at, damaged = row
    return DeadLetter(str(id_), Block(*coordinates), tries, error, at, bool(damaged))  # type: ignore[arg-type]
