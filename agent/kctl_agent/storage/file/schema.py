"""The tables, connections and transactions of a file storage.

`block` holds the messages, and `queue` holds the state of each block. SQLite rewrites a whole row if one column changes
size. In a single table, each lease would rewrite the block, about 100 KB. Triggers keep the totals of each partition in
`counters`, so that statistics need not count blocks.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kctl_agent.storage.base import StorageUnusable

SCHEMA_VERSION = 5
OLDEST_SQLITE = (3, 35, 0)
"""For RETURNING: https://sqlite.org/releaselog/3_35_0.html"""
PAGE_BYTES = 16384
"""A block of 500 small messages is about 100 KB: large pages halve the cost of writing it (benchmarks/pipeline.py)."""
BUSY_SECONDS = 30.0
LOG_BYTES = 256 << 20
"""A longer log is copied by the thread that notices, and truncated to this size when it restarts."""

TABLES = (
    # The id and owner of this storage; one row after the first `bind`.
    "create table storage(id text not null, group_name text not null, cluster_id text)",
    "create table stored_offset("
    " topic text not null, partition integer not null, topic_id text, next integer not null,"
    " version integer not null default 0, primary key (topic, partition)) without rowid",
    "create table block("
    " id integer primary key, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null,"
    " body blob not null)",
    # `until` ends a lease or a delay and is null if pending; `since` is when it was put, in Unix seconds.
    "create table queue("
    " id integer primary key, topic text not null, partition integer not null, count integer not null,"
    " bytes integer not null, state text not null, since real not null, tries integer not null default 0,"
    " owner text, token text, leased_at real, until real)",
    "create table dead("
    " id integer primary key autoincrement, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null,"
    " tries integer not null, error text not null, at real not null, damaged integer not null, body blob not null,"
    " cause integer)",
    "create table cause(id integer primary key, error_class text not null, line text not null)",
    "create table counters("
    " topic text not null, partition integer not null, state text not null, messages integer not null,"
    " bytes integer not null, primary key (topic, partition, state)) without rowid",
    # The machine's boot id at the last use: leases are void after a reboot.
    "create table boot(id text not null)",
)

INDEXES = (
    "create index queue_ready on queue(id) where state='pending'",
    "create index queue_until on queue(until) where until is not null",
    "create index queue_owner on queue(owner) where owner is not null",
    "create index queue_partition on queue(topic, partition)",
    "create index dead_partition on dead(topic, partition, first)",
    "create unique index cause_names on cause(error_class, line)",
    "create index dead_at on dead(at)",
    # Groups are counted from this index, without reading the dead letters.
    "create index dead_cause on dead(cause, topic, partition, at)",
)

_COUNT = """
    insert into counters values ({row}.topic, {row}.partition, {state}, {sign} {row}.count, {sign} {row}.bytes)
        on conflict do update set messages=messages+excluded.messages, bytes=bytes+excluded.bytes;
"""


def _trigger(name: str, event: str, table: str, state: str, *rows: tuple[str, str]) -> str:
    changes = "".join(_COUNT.format(row=row, sign=sign, state=state.format(row=row)) for row, sign in rows)
    return f"create trigger {name} after {event} on {table} begin {changes} end"


TRIGGERS = (
    _trigger("queue_insert", "insert", "queue", "{row}.state", ("new", "+")),
    _trigger("queue_update", "update of state, count, bytes", "queue", "{row}.state", ("old", "-"), ("new", "+")),
    _trigger("queue_delete", "delete", "queue", "{row}.state", ("old", "-")),
    _trigger("dead_insert", "insert", "dead", "'dead'", ("new", "+")),
    _trigger("dead_delete", "delete", "dead", "'dead'", ("old", "-")),
)


def create(db: sqlite3.Connection, path: Path) -> None:
    """Creates the tables in a new file. Raises StorageUnusable if the file has another version or SQLite is too old."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StorageUnusable(f"this Python has SQLite {sqlite3.sqlite_version}; a file storage needs {oldest}")
    db.execute(f"pragma page_size={PAGE_BYTES}")
    db.execute("pragma journal_mode=wal")
    with transaction(db):
        (version,) = db.execute("pragma user_version").fetchone()
        if version not in (0, SCHEMA_VERSION):
            raise StorageUnusable(
                f"{path} has version {version} of the storage, but this release reads version {SCHEMA_VERSION}: name "
                "another storage.path, or use the release that wrote it"
            )
        if version == 0:
            for statement in (*TABLES, *INDEXES, *TRIGGERS):
                db.execute(statement)
            db.execute(f"pragma user_version={SCHEMA_VERSION}")


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Opens a connection that any thread may use, one at a time. Mode `rwc` creates the file. Raises sqlite3.Error."""
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
    """Begins a transaction with the write lock: until its end, no other connection can write."""
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back on a full disk
            db.execute("rollback")
        raise
