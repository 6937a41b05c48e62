"""Claim, settle, renew and release in a file storage: each one transaction on a connection that is given."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from kctl_agent.storage.ack_rules import Verdict
from kctl_agent.storage.block import Block
from kctl_agent.storage.claim import Claim, DeadLetter
from kctl_agent.storage.file_dead_letters import insert_dead
from kctl_agent.storage.file_schema import FREE, FREE_COUNTED, transaction

__all__ = ["Wanted", "dead_letter_damaged", "lease", "release", "renew", "settle"]

HEADS = """
select id, count, bytes from turn where state='pending' and id in (
    select (select id from turn where topic=t.topic and partition=t.partition order by id limit 1)
    from (select topic, partition from tally where state='pending' and messages>0) t)
order by id
"""

FIRST = "select id, count, bytes from turn where state='pending' order by id"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of a claim: how many messages and how many bytes at the most (None: any), see `Storage.claim`."""

    messages: int
    bytes: int | None
    ordered: bool


def lease(
    db: sqlite3.Connection, now: float, owner: str, token: str, lease_seconds: float, wanted: Wanted
) -> list[tuple[str, int, Block]]:
    """Lease the next blocks; (id, tries, block) of each. Without work it takes no lock that others wait for."""
    (waits,) = db.execute(
        "select exists(select 1 from turn where state='pending') or exists(select 1 from turn where until<=?)", (now,)
    ).fetchone()
    if not waits:
        return []
    with transaction(db):
        db.execute(f"update turn set {FREE_COUNTED} where until<=?", (now,))  # noqa: S608
        ids = json.dumps(_choose(db, wanted))
        tries = dict(
            db.execute(
                "update turn set state='processing', owner=?, token=?, leased_at=?, until=?"
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


def _choose(db: sqlite3.Connection, wanted: Wanted) -> list[int]:
    """Ids of the first pending blocks that are as many as wanted. Rows are read one by one, no further."""
    ids: list[int] = []
    messages, room = wanted.messages, float("inf") if wanted.bytes is None else wanted.bytes
    for id_, count, size in db.execute(HEADS if wanted.ordered else FIRST):
        room -= size
        if ids and room < 0:
            break
        ids.append(id_)
        messages -= count
        if messages <= 0:
            break
    return ids


def settle(db: sqlite3.Connection, now: float, claim: Claim, verdict: Verdict, retry_seconds: float) -> bool:
    """False: the lease is lost, and nothing was changed."""
    lease_of = (int(claim.id), claim.token)
    again = verdict.again
    with transaction(db):
        if again is None:
            if not db.execute("delete from turn where id=? and token=?", lease_of).rowcount:
                return False
            db.execute("delete from block where id=?", lease_of[:1])
            insert_dead(db, verdict.dead)
            return True
        changed = db.execute(
            f"update turn set {FREE}, state='delayed', tries=tries+1, until=?, count=?, bytes=?"  # noqa: S608
            " where id=? and token=?",
            (now + retry_seconds, again.count, len(again.body), *lease_of),
        )
        if changed.rowcount and again is not claim.block:
            db.execute(
                "update block set first=?, last=?, count=?, bytes=?, body=? where id=?",
                (again.first, again.last, again.count, len(again.body), again.body, lease_of[0]),
            )
        return bool(changed.rowcount)


def dead_letter_damaged(db: sqlite3.Connection, token: str, dead_letters: Iterable[tuple[str, DeadLetter]]) -> None:
    """Make leased blocks that cannot be read dead letters with their bytes."""
    with transaction(db):
        for id_, dead_letter in dead_letters:
            if db.execute("delete from turn where id=? and token=?", (int(id_), token)).rowcount:
                db.execute("delete from block where id=?", (int(id_),))
                insert_dead(db, [dead_letter])


def renew(db: sqlite3.Connection, now: float, claim: Claim, lease_seconds: float) -> bool:
    until = now + lease_seconds
    with transaction(db):
        changed = db.execute("update turn set until=? where id=? and token=?", (until, int(claim.id), claim.token))
        return bool(changed.rowcount)


def release(db: sqlite3.Connection, owner: str, count_try: bool) -> int:
    """Messages given back."""
    with transaction(db):
        rows = db.execute(
            f"update turn set tries=tries+?, {FREE} where owner=? returning count",  # noqa: S608
            (int(count_try), owner),
        ).fetchall()
    return sum(count for (count,) in rows)
