"""The tables of a file storage, and how a file of an older version becomes one of this.

`block` holds the messages and is never changed while they wait; `turn` says what is being done with each block. They
are two tables because SQLite writes a whole row anew when one column of it changes size: a lease would cost another
100 KB each. `tally` is kept by triggers, so that counting costs the same for ten blocks and ten million.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.clock import MachineClock

__all__ = ["FREE", "FREE_COUNTED", "LOG_BYTES", "SCHEMA_VERSION", "connect", "create", "note_boot", "transaction"]

SCHEMA_VERSION = 3
OLDEST_SQLITE = (3, 35, 0)
"""RETURNING, https://sqlite.org/releaselog/3_35_0.html"""
BUSY_SECONDS = 30.0
PAGE_BYTES = 16384
"""A block of 500 small messages is about 100 KB: large pages halve the cost of writing it (benchmarks/pipeline.py)."""
LOG_BYTES = 256 << 20
"""A write-ahead log that is longer is copied by whoever notices; as a rule `file_writer` was there before. It is cut to
this length when it begins anew."""

FREE = "state='pending', owner=null, token=null, leased_at=null, until=null"
"""What makes a block claimable, whoever held it."""
FREE_COUNTED = f"tries=tries+(state='processing'), {FREE}"
"""The same, and a lease that ended so counts as a try. `tries` may be set first: SQLite sets all from the old row."""

VERSION_1 = """
create table mark(
    topic text not null, partition integer not null, topic_id text, next integer not null, committed integer,
    primary key (topic, partition)) without rowid;
create table block(
    id integer primary key, topic text not null, topic_id text, partition integer not null,
    first integer not null, last integer not null, count integer not null, bytes integer not null,
    state text not null default 'pending', body blob not null);
create index block_state on block(state, count, bytes)
"""

TALLY = """
    insert into tally values ({row}.topic, {row}.partition, {state}, {sign} {row}.count, {sign} {row}.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
"""


def _trigger(name: str, event: str, table: str, state: str, *rows: tuple[str, str]) -> str:
    changes = "".join(TALLY.format(row=row, sign=sign, state=state.format(row=row)) for row, sign in rows)
    return f"create trigger {name} after {event} on {table} begin {changes} end"


VERSION_2 = [
    "drop index block_state",
    # `until` ends a lease or a delay and is null of what is pending; `since` is when it was put, in Unix seconds.
    "create table turn("
    " id integer primary key, topic text not null, partition integer not null, count integer not null,"
    " bytes integer not null, state text not null, since real not null, tries integer not null default 0,"
    " owner text, token text, leased_at real, until real)",
    "create index turn_ready on turn(id) where state='pending'",
    "create index turn_until on turn(until) where until is not null",
    "create index turn_owner on turn(owner) where owner is not null",
    "create index turn_line on turn(topic, partition)",
    "create table dead("
    " id integer primary key autoincrement, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null, tries integer"
    " not null, error text not null, at real not null, damaged integer not null, body blob not null)",
    "create index dead_line on dead(topic, partition, first)",
    "create table tally("
    " topic text not null, partition integer not null, state text not null, messages integer not null,"
    " bytes integer not null, primary key (topic, partition, state)) without rowid",
    "create table boot(id text not null)",
    _trigger("turn_begins", "insert", "turn", "{row}.state", ("new", "+")),
    _trigger("turn_changes", "update of state, count, bytes", "turn", "{row}.state", ("old", "-"), ("new", "+")),
    _trigger("turn_ends", "delete", "turn", "{row}.state", ("old", "-")),
    _trigger("dead_comes", "insert", "dead", "'dead'", ("new", "+")),
    _trigger("dead_goes", "delete", "dead", "'dead'", ("old", "-")),
]
ADOPT = (
    "insert into turn(id, topic, partition, count, bytes, state, since)"
    " select id, topic, partition, count, bytes, 'pending', ? from block"
)


VERSION_3 = [
    # The id of this storage, and whose messages it holds; one row once somebody has bound it.
    "create table storage(id text not null, group_name text not null, cluster_id text)",
    "alter table mark add column version integer not null default 0",
    "alter table mark drop column committed",
]


def connect(path: Path) -> sqlite3.Connection:
    """A connection for any thread, one at a time. Raises sqlite3.Error."""
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        db.execute("pragma wal_autocheckpoint=0")  # file_checkpoint says why
        db.execute(f"pragma journal_size_limit={LOG_BYTES}")
        db.execute("pragma synchronous=normal")
    except BaseException:
        db.close()
        raise
    return db


def create(db: sqlite3.Connection, path: Path, clock: MachineClock) -> None:
    """Make the tables, or bring a file of an older version up to this one in place, or do nothing.

    Raises:
        StorageUnusable: a file of another version, or a SQLite that is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StorageUnusable(f"this Python has SQLite {sqlite3.sqlite_version}; a file storage needs {oldest}")
    db.execute(f"pragma page_size={PAGE_BYTES}")
    db.execute("pragma journal_mode=wal")
    with transaction(db):
        (version,) = db.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise StorageUnusable(
                f"{path} has version {version} of the storage; this release reads versions 1 to {SCHEMA_VERSION}"
            )
        if version == 0:
            for statement in VERSION_1.split(";"):
                db.execute(statement)
        if version < 2:
            for statement in VERSION_2:
                db.execute(statement)
            db.execute(ADOPT, (clock.wall(),))
        if version < 3:
            for statement in VERSION_3:
                db.execute(statement)
        if version < SCHEMA_VERSION:
            db.execute(f"pragma user_version={SCHEMA_VERSION}")


def note_boot(db: sqlite3.Connection, clock: MachineClock) -> None:
    """After a boot nobody who held a lease is alive, and times of the boot before mean nothing: all is pending."""
    boot_id = clock.boot_id()
    if db.execute("select id from boot").fetchone() == (boot_id,):
        return
    with transaction(db):
        db.execute("delete from boot")
        db.execute("insert into boot values (?)", (boot_id,))
        db.execute(
            f"update turn set {FREE_COUNTED} where until is not null"  # noqa: S608
        )


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
