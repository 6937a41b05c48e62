"""Marks of a file storage, and whose they are: statements on a connection whose transaction is the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from kctl_agent.storage.base import Binding, Mark, TopicPartition

__all__ = ["advance", "bind", "bound", "one", "read", "write"]

_COLUMNS = "topic, partition, topic_id, next, version"


def bound(db: sqlite3.Connection) -> tuple[str, Binding | None]:
    """The id of the storage and whose it is; "" and None before the first `bind`."""
    row = db.execute("select id, group_name, cluster_id from storage").fetchone()
    return (row[0], Binding(row[1], row[2])) if row else ("", None)


def bind(db: sqlite3.Connection, id_: str, owner: Binding) -> None:
    db.execute("delete from storage")
    db.execute("insert into storage(id, group_name, cluster_id) values (?,?,?)", (id_, owner.group, owner.cluster_id))


def read(db: sqlite3.Connection, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Mark]:
    """A partition without a mark is absent."""
    wanted = frozenset(partitions)
    marks = (Mark(*row) for row in db.execute(f"select {_COLUMNS} from mark"))  # noqa: S608 - our own names
    return {mark.tp: mark for mark in marks if mark.tp in wanted}


def one(db: sqlite3.Connection, tp: TopicPartition) -> Mark | None:
    row = db.execute(f"select {_COLUMNS} from mark where topic=? and partition=?", tp).fetchone()  # noqa: S608
    return Mark(*row) if row else None


def write(db: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    db.executemany(
        f"insert or replace into mark({_COLUMNS}) values (?,?,?,?,?)",  # noqa: S608
        [(m.topic, m.partition, m.topic_id, m.next, m.version) for m in marks],
    )


def advance(db: sqlite3.Connection, mark: Mark, end: int) -> None:
    """Never backwards."""
    db.execute("update mark set next=max(next, ?) where topic=? and partition=?", (end, *mark.tp))
