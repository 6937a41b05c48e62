"""The stored offsets and the owner of a file storage. The caller opens the transaction."""

import sqlite3
from collections.abc import Collection, Iterable

from kctl_agent.storage.chunk import Binding, StoredOffset, TopicPartition

_COLUMNS = "topic, partition, topic_id, next, version"


def bound(db: sqlite3.Connection) -> tuple[str, Binding | None]:
    """Returns the storage's id and owner, or "" and None before the first `bind`."""
    row = db.execute("select id, group_name, cluster_id from storage").fetchone()
    return (row[0], Binding(row[1], row[2])) if row else ("", None)


def bind(db: sqlite3.Connection, id_: str, owner: Binding) -> None:
    db.execute("delete from storage")
    db.execute("insert into storage(id, group_name, cluster_id) values (?,?,?)", (id_, owner.group, owner.cluster_id))


def read(db: sqlite3.Connection, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
    wanted = frozenset(partitions)
    stored_offsets = (StoredOffset(*row) for row in db.execute(f"select {_COLUMNS} from stored_offset"))  # noqa: S608 - our own names
    return {stored.tp: stored for stored in stored_offsets if stored.tp in wanted}


def one(db: sqlite3.Connection, tp: TopicPartition) -> StoredOffset | None:
    row = db.execute(f"select {_COLUMNS} from stored_offset where topic=? and partition=?", tp).fetchone()  # noqa: S608
    return StoredOffset(*row) if row else None


def write(db: sqlite3.Connection, stored_offsets: Iterable[StoredOffset]) -> None:
    db.executemany(
        f"insert or replace into stored_offset({_COLUMNS}) values (?,?,?,?,?)",  # noqa: S608
        [(m.topic, m.partition, m.topic_id, m.next, m.version) for m in stored_offsets],
    )


def advance(db: sqlite3.Connection, stored: StoredOffset, end: int) -> None:
    db.execute("update stored_offset set next=max(next, ?) where topic=? and partition=?", (end, *stored.tp))
