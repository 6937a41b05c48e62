"""The tables of a file storage, its connections and transactions.

`block` holds the messages and is never changed while they wait; `queue` has a row for each block: its state, lease and
tries. They are two tables because SQLite writes a whole row anew when one column of it changes size: a lease would cost
another 100 KB each. `counters` is kept by triggers, so that counting costs the same for ten blocks and ten million.

How a file of an older version becomes one of this is in `migrations`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "CAUSES",
    "DEAD_INDEXES",
    "INDEXES",
    "LOG_BYTES",
    "SCHEMA_VERSION",
    "TABLES",
    "TRIGGERS",
    "connect",
    "transaction",
    "trigger",
]

SCHEMA_VERSION = 5
BUSY_SECONDS = 30.0
LOG_BYTES = 256 << 20
"""A write-ahead log that is longer is copied by the thread that notices; as a rule `writer` was there before. It
is cut to this length when it begins anew."""

CAUSES = "create table cause(id integer primary key, error_class text not null, line text not null)"

TABLES = (
    # The id of this storage, and whose messages it holds; one row once somebody has bound it.
    "create table storage(id text not null, group_name text not null, cluster_id text)",
    "create table stored_offset("
    " topic text not null, partition integer not null, topic_id text, next integer not null,"
    " version integer not null default 0, primary key (topic, partition)) without rowid",
    # `state` is of version 1 and not used: to drop a column would write all blocks anew.
    "create table block("
    " id integer primary key, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null,"
    " state text not null default 'pending', body blob not null)",
    # `until` ends a lease or a delay and is null of what is pending; `since` is when it was put, in Unix seconds.
    "create table queue("
    " id integer primary key, topic text not null, partition integer not null, count integer not null,"
    " bytes integer not null, state text not null, since real not null, tries integer not null default 0,"
    " owner text, token text, leased_at real, until real)",
    "create table dead("
    " id integer primary key autoincrement, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null,"
    " tries integer not null, error text not null, at real not null, damaged integer not null, body blob not null,"
    " cause integer)",
    CAUSES,
    "create table counters("
    " topic text not null, partition integer not null, state text not null, messages integer not null,"
    " bytes integer not null, primary key (topic, partition, state)) without rowid",
    # Of the machine, when the storage was used last: after a boot no lease means anything.
    "create table boot(id text not null)",
)

DEAD_INDEXES = (
    "create unique index cause_names on cause(error_class, line)",
    "create index dead_at on dead(at)",
    # What groups are counted from, without a look at the dead letters themselves.
    "create index dead_cause on dead(cause, topic, partition, at)",
)

INDEXES = (
    "create index queue_ready on queue(id) where state='pending'",
    "create index queue_until on queue(until) where until is not null",
    "create index queue_owner on queue(owner) where owner is not null",
    "create index queue_partition on queue(topic, partition)",
    "create index dead_partition on dead(topic, partition, first)",
    *DEAD_INDEXES,
)

_COUNT = """
    insert into {counters} values ({row}.topic, {row}.partition, {state}, {sign} {row}.count, {sign} {row}.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
"""


def trigger(name: str, event: str, table: str, state: str, *rows: tuple[str, str], counters: str = "counters") -> str:
    """One that adds each row, given as (`new` or `old`, sign), to the counters of its state."""
    changes = "".join(
        _COUNT.format(row=row, sign=sign, state=state.format(row=row), counters=counters) for row, sign in rows
    )
    return f"create trigger {name} after {event} on {table} begin {changes} end"


TRIGGERS = (
    trigger("queue_insert", "insert", "queue", "{row}.state", ("new", "+")),
    trigger("queue_update", "update of state, count, bytes", "queue", "{row}.state", ("old", "-"), ("new", "+")),
    trigger("queue_delete", "delete", "queue", "{row}.state", ("old", "-")),
    trigger("dead_insert", "insert", "dead", "'dead'", ("new", "+")),
    trigger("dead_delete", "delete", "dead", "'dead'", ("old", "-")),
)


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """A connection for any thread, one at a time; with `rwc` the file is made. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False, uri=True)
    try:
        db.execute("pragma wal_autocheckpoint=0")  # the reason is in `checkpoint`
        db.execute(f"pragma journal_size_limit={LOG_BYTES}")
        db.execute("pragma synchronous=normal")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """`begin immediate`: the lock is taken before anything is read, so what is read cannot change before it is
    written."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back on a full disk
            db.execute("rollback")
        raise
