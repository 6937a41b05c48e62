"""The blocks and queue of a file storage, and a clock for leases. Callers of `insert` or `free` open a transaction."""

import json
import math
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kctl_agent.storage.ack_rules import AckVerdict, requeued
from kctl_agent.storage.block import Block
from kctl_agent.storage.claim import Claim, DeadLetter
from kctl_agent.storage.file import dead_letter_table
from kctl_agent.storage.file.schema import transaction
from kctl_agent.storage.limits import PartitionStats
from kctl_agent.storage.selection import Selection

HEADS = """
select id, count, bytes from queue where state='pending' and id in (
    select (select id from queue where topic=c.topic and partition=c.partition order by id limit 1)
    from (select topic, partition from counters where state='pending' and messages>0) c)
order by id
"""

FIRST = "select id, count, bytes from queue where state='pending' order by id"


class MachineClock:
    """Counts seconds since boot, including time in suspend."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Returns the id of this boot (random(4)). The id and the clock are the same in all containers of a machine."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def wall(self) -> float:
        return time.time()


def insert(db: sqlite3.Connection, blocks: Iterable[Block], wall: float) -> int:
    written, first = 0, None
    for block in blocks:
        size = len(block.body)
        row = db.execute(
            "insert into block(topic, topic_id, partition, first, last, count, bytes, body) values (?,?,?,?,?,?,?,?)",
            (block.topic, block.topic_id, block.partition, block.first, block.last, block.count, size, block.body),
        )
        first = first or row.lastrowid
        written += size
    # One statement for all: a statement with triggers makes SQLite keep a copy of each changed page until its end.
    db.execute(
        "insert into queue(id, topic, partition, count, bytes, state, since)"
        " select id, topic, partition, count, bytes, 'pending', ? from block where id>=?",
        (wall, first),
    )
    return written


def lease(
    db: sqlite3.Connection, now: float, owner: str, token: str, lease_seconds: float, *size: Any
) -> list[tuple[str, int, Block]]:
    """Leases pending blocks to `owner`. Returns (id, tries, block) for each block."""
    # Looks before it locks: polling an empty queue must not delay writers.
    (waits,) = db.execute(
        "select exists(select 1 from queue where state='pending') or exists(select 1 from queue where until<=?)", (now,)
    ).fetchone()
    if not waits:
        return []
    with transaction(db):
        free(db, "until<=?", now)
        ids = json.dumps(_choose(db, *size))
        tries = dict(
            db.execute(
                "update queue set state='processing', owner=?, token=?, leased_at=?, until=?"
                " where id in (select value from json_each(?)) returning id, tries",
                (owner, token, now, now + lease_seconds, ids),
            ).fetchall()
        )
        rows = db.execute(
            "select id, topic, topic_id, partition, first, last, count, body from block"
            " where id in (select value from json_each(?)) order by id",
            (ids,),
        ).fetchall()
    return [(str(row[0]), tries[row[0]], Block(*row[1:])) for row in rows]


def _choose(db: sqlite3.Connection, messages: int, most_bytes: int | None, ordered: bool) -> list[int]:
    ids: list[int] = []
    room = float("inf") if most_bytes is None else most_bytes
    for id_, count, size in db.execute(HEADS if ordered else FIRST):
        room -= size
        if ids and room < 0:
            break
        ids.append(id_)
        messages -= count
        if messages <= 0:
            break
    return ids


def settle(db: sqlite3.Connection, now: float, claim: Claim, verdict: AckVerdict, retry_seconds: float) -> bool:
    leased = (int(claim.id), claim.token)
    again = verdict.again
    with transaction(db):
        if again is None:
            if not db.execute("delete from queue where id=? and token=?", leased).rowcount:
                return False
            db.execute("delete from block where id=?", leased[:1])
            dead_letter_table.insert(db, verdict.dead)
            return True
        changed = db.execute(
            "update queue set state='delayed', tries=tries+1, owner=null, token=null, leased_at=null,"
            " until=?, count=?, bytes=? where id=? and token=?",
            (now + retry_seconds, again.count, len(again.body), *leased),
        )
        if changed.rowcount and again is not claim.block:
            db.execute(
                "update block set first=?, last=?, count=?, bytes=?, body=? where id=?",
                (again.first, again.last, again.count, len(again.body), again.body, leased[0]),
            )
            dead_letter_table.insert(db, verdict.dead)
        return bool(changed.rowcount)


def dead_letter_damaged(db: sqlite3.Connection, token: str, damaged: Iterable[tuple[str, DeadLetter]]) -> None:
    with transaction(db):
        for id_, dead_letter in damaged:
            if db.execute("delete from queue where id=? and token=?", (int(id_), token)).rowcount:
                db.execute("delete from block where id=?", (int(id_),))
                dead_letter_table.insert(db, [dead_letter])


def note_boot(db: sqlite3.Connection, clock: MachineClock) -> None:
    """After a reboot, makes all blocks pending: lease owners have ended, and stored times no longer fit `clock`."""
    boot_id = clock.boot_id()
    if db.execute("select id from boot").fetchone() == (boot_id,):
        return
    with transaction(db):
        db.execute("delete from boot")
        db.execute("insert into boot values (?)", (boot_id,))
        free(db, "until is not null")


def requeue_dead(
    db: sqlite3.Connection,
    dead_letters: list[DeadLetter],
    wall: float,
    block_messages: int,
    block_bytes: int,
    codec: str,
) -> int:
    with transaction(db):
        there = dead_letter_table.remaining(db, dead_letters)
        blocks, ids = requeued(there, block_messages, block_bytes, codec)
        insert(db, blocks, wall)
        dead_letter_table.delete(db, ids)
    return len(ids)


def requeue_stuck(db: sqlite3.Connection, selection: Selection, now: float) -> int:
    where, values = _condition(selection)
    age = selection.older_than_seconds
    with transaction(db):
        return free(
            db,
            "(state='delayed' or (state='processing' and (until<=? or leased_at<=?)))"  # noqa: S608
            f" and id in (select id from block where {where})",
            *(now, -1.0 if age is None else now - age, *values),
        )


def clear(db: sqlite3.Connection, selection: Selection, wall: float) -> int:
    where, values = _condition(selection)
    age = selection.older_than_seconds
    with transaction(db):
        rows = db.execute(
            "delete from queue where state in ('pending', 'delayed') and since<=?"  # noqa: S608
            f" and id in (select id from block where {where}) returning count",
            (math.inf if age is None else wall - age, *values),
        ).fetchall()
        db.execute("delete from block where id not in (select id from queue)")
    return sum(count for (count,) in rows)


def partitions(db: sqlite3.Connection, wall: float) -> tuple[PartitionStats, ...]:
    found: dict[tuple[str, int], PartitionStats] = {}
    for topic, partition, state, messages, size in db.execute(
        "select topic, partition, state, messages, bytes from counters where messages>0 order by topic, partition"
    ):
        tp = (topic, partition)
        found[tp] = found.get(tp, PartitionStats(*tp)).plus(state, messages, size)
    for topic, partition, since in db.execute(
        "select topic, partition,"
        " (select since from queue where topic=c.topic and partition=c.partition order by id limit 1)"
        " from (select distinct topic, partition from counters where messages>0 and state<>'dead') c"
    ):
        tp = (topic, partition)
        if tp in found and since is not None:  # it may have been settled between the two
            found[tp] = found[tp].plus("pending", 0, 0, max(wall - since, 0.0))
    return tuple(found.values())


def free(db: sqlite3.Connection, where: str, *values: object, count_try: bool = True) -> int:
    rows = db.execute(  # `tries` may come first: SQLite computes every column from the old row
        "update queue set tries=tries+(state='processing' and ?), state='pending', owner=null, token=null,"  # noqa: S608
        f" leased_at=null, until=null where {where} returning count",
        (count_try, *values),
    ).fetchall()
    return sum(count for (count,) in rows)


def _condition(selection: Selection) -> tuple[str, list[object]]:
    chosen = selection.of_blocks()
    return dead_letter_table.where(
        ("1=?", 1),
        ("topic=?", chosen.topic),
        ("partition=?", chosen.partition),
        ("last>=?", chosen.offset_from),
        ("first<=?", chosen.offset_to),
    )
