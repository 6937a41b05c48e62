"""Makes the tables of a file storage, or brings a file of an older version up to this one: in place, in one
transaction.

Each step is as it was when its version was new, with the names of that time; the last one makes them today's.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.causes import cause_of
from kctl_agent.storage.clock import MachineClock
from kctl_agent.storage.file.schema import (
    CAUSES,
    DEAD_INDEXES,
    INDEXES,
    SCHEMA_VERSION,
    TABLES,
    TRIGGERS,
    transaction,
    trigger,
)

__all__ = ["create"]

OLDEST_SQLITE = (3, 35, 0)
"""RETURNING, https://sqlite.org/releaselog/3_35_0.html"""
PAGE_BYTES = 16384
"""A block of 500 small messages is about 100 KB: large pages halve the cost of writing it (benchmarks/pipeline.py)."""

VERSION_2 = (
    "drop index block_state",
    "create table turn("
    " id integer primary key, topic text not null, partition integer not null, count integer not null,"
    " bytes integer not null, state text not null, since real not null, tries integer not null default 0,"
    " owner text, token text, leased_at real, until real)",
    "create table dead("
    " id integer primary key autoincrement, topic text not null, topic_id text, partition integer not null,"
    " first integer not null, last integer not null, count integer not null, bytes integer not null, tries integer"
    " not null, error text not null, at real not null, damaged integer not null, body blob not null)",
    "create table tally("
    " topic text not null, partition integer not null, state text not null, messages integer not null,"
    " bytes integer not null, primary key (topic, partition, state)) without rowid",
    "create table boot(id text not null)",
    trigger("turn_begins", "insert", "turn", "{row}.state", ("new", "+"), counters="tally"),
    "insert into turn(id, topic, partition, count, bytes, state, since)"
    " select id, topic, partition, count, bytes, 'pending', :wall from block",
)
VERSION_3 = (
    "create table storage(id text not null, group_name text not null, cluster_id text)",
    "alter table mark add column version integer not null default 0",
    "alter table mark drop column committed",
)
VERSION_4 = (
    *(f"drop trigger if exists {name}" for name in ("turn_begins", "turn_changes", "turn_ends")),
    *(f"drop trigger if exists {name}" for name in ("dead_comes", "dead_goes")),
    *(f"drop index if exists {name}" for name in ("turn_ready", "turn_until", "turn_owner", "turn_line", "dead_line")),
    "alter table mark rename to stored_offset",
    "alter table turn rename to queue",
    "alter table tally rename to counters",
    *(index for index in INDEXES if index not in DEAD_INDEXES),
    *TRIGGERS,
)
VERSION_5 = (
    CAUSES,
    "alter table dead add column cause integer",
    "insert into cause(error_class, line) select distinct error_class(error), handler_line(error) from dead",
    "update dead set cause="
    "(select id from cause where cause.error_class=error_class(dead.error) and cause.line=handler_line(dead.error))",
    *DEAD_INDEXES,
)
STEPS = {2: VERSION_2, 3: VERSION_3, 4: VERSION_4, 5: VERSION_5}


def create(db: sqlite3.Connection, path: Path, clock: MachineClock) -> None:
    """Make the tables, or bring a file of an older version up to this one, or do nothing.

    Processes of an older release that have the file open get errors afterwards, and put and claim nothing.

    Raises:
        StorageUnusable: a file of another version, or a SQLite that is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StorageUnusable(f"this Python has SQLite {sqlite3.sqlite_version}; a file storage needs {oldest}")
    db.execute(f"pragma page_size={PAGE_BYTES}")
    db.execute("pragma journal_mode=wal")
    db.create_function("error_class", 1, lambda error: cause_of(error).error_class, deterministic=True)
    db.create_function("handler_line", 1, lambda error: cause_of(error).line, deterministic=True)
    with transaction(db):
        (version,) = db.execute("pragma user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise StorageUnusable(
                f"{path} has version {version} of the storage; this release reads versions 1 to {SCHEMA_VERSION}"
            )
        if version == SCHEMA_VERSION:
            return
        for statement in _statements(version):
            db.execute(statement, {"wall": clock.wall()} if ":wall" in statement else {})
        db.execute(f"pragma user_version={SCHEMA_VERSION}")


def _statements(version: int) -> list[str]:
    """From a file of this version; 0 is an empty one."""
    if version == 0:
        return [*TABLES, *INDEXES, *TRIGGERS]
    return [statement for step in range(version + 1, SCHEMA_VERSION + 1) for statement in STEPS[step]]
