"""One SQLite file as storage: the embedded default. Not for network file systems (their locks do not hold).

WAL, so that readers never wait for the writer; `synchronous=FULL`, because an offset is committed to Kafka right after
the put and a power cut must not take back what was committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from kctl_agent.storage.base import (
    Chunk,
    GapRefused,
    Mark,
    MarkMissing,
    Put,
    Storage,
    StorageStats,
    StorageUnusable,
    TopicPartition,
    TopicRecreated,
    Writer,
)
from kctl_agent.storage.block import Block, encode

__all__ = ["SCHEMA_VERSION", "FileStorage"]

SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
PAGE_BYTES = 16384
"""A block of 500 small messages is about 100 KB: large pages halve the cost of writing it (benchmarks/pipeline.py)."""
CHECKPOINT_PAGES = 4096

SCHEMA = """
create table mark(
    topic text not null, partition integer not null, topic_id text, next integer not null, committed integer,
    primary key (topic, partition)) without rowid;
create table block(
    id integer primary key, topic text not null, topic_id text, partition integer not null,
    first integer not null, last integer not null, count integer not null, bytes integer not null,
    state text not null default 'pending', body blob not null);
create index block_state on block(state, count, bytes);
"""


class FileStorage(Storage):
    """See `Storage`; one file, any number of processes on one machine."""

    def __init__(self, path: Path, *, block_messages: int = 500, codec: str = "none", limit: int | None = None) -> None:
        self.path = path.absolute()
        self.block_messages = block_messages
        self.codec = codec
        self.limit = limit

    @property
    def identity(self) -> str:
        return f"file:{self.path}"

    def prepare(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageUnusable(f"cannot make the folder {self.path.parent}: {error.strerror}") from error
        with self._connected() as db:
            db.execute(f"pragma page_size={PAGE_BYTES}")
            db.execute("pragma journal_mode=wal")
            with _transaction(db):
                (version,) = db.execute("pragma user_version").fetchone()
                if version == 0:
                    for statement in SCHEMA.split(";"):
                        db.execute(statement)
                    db.execute(f"pragma user_version={SCHEMA_VERSION}")
                elif version != SCHEMA_VERSION:
                    raise StorageUnusable(
                        f"{self.path} has version {version} of the storage; this release reads version {SCHEMA_VERSION}"
                    )

    def marks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Mark]:
        with self._connected() as db:
            rows = db.execute("select topic, partition, topic_id, next, committed from mark").fetchall()
        return {(row[0], row[1]): Mark(*row) for row in rows if (row[0], row[1]) in partitions}

    def place_marks(self, marks: Collection[Mark]) -> None:
        with self._connected() as db, _transaction(db):
            db.executemany(
                "insert or replace into mark(topic, partition, topic_id, next, committed) values (?,?,?,?,?)",
                [(m.topic, m.partition, m.topic_id, m.next, m.committed) for m in marks],
            )

    def advance_marks(self, ends: Mapping[TopicPartition, int]) -> None:
        with self._connected() as db, _transaction(db):
            db.executemany(
                "update mark set next=max(next, ?) where topic=? and partition=?",
                [(end, topic, partition) for (topic, partition), end in ends.items()],
            )

    def record_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        with self._connected() as db, _transaction(db):
            db.executemany(
                "update mark set committed=max(coalesce(committed, 0), ?) where topic=? and partition=?",
                [(offset, topic, partition) for (topic, partition), offset in committed.items()],
            )

    def writer(self) -> FileWriter:
        return FileWriter(self._connect(), self.block_messages, self.codec)

    def stats(self) -> StorageStats:
        with self._connected() as db:
            rows = db.execute("select state, sum(count), sum(bytes) from block group by state").fetchall()
        counts = {state: count for state, count, _ in rows}
        return StorageStats(
            counts.get("pending", 0),
            counts.get("processing", 0),
            counts.get("dead", 0),
            sum(size for _, _, size in rows),
            self.limit,
        )

    def blocks(self) -> Iterator[Block]:
        with self._connected() as db:
            for row in db.execute("select topic, topic_id, partition, first, last, count, body from block order by id"):
                yield Block(*row)

    def _connect(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
            db.execute("pragma synchronous=full")
            db.execute(f"pragma wal_autocheckpoint={CHECKPOINT_PAGES}")
        except sqlite3.Error as error:
            raise StorageUnusable(f"cannot open the storage {self.path}: {error}") from error
        return db

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as db:
            try:
                yield db
            except sqlite3.Error as error:
                raise StorageUnusable(f"the storage {self.path} cannot be used: {error}") from error


FileStorage.__abstractmethods__ = frozenset()  # until the next commit: the sinkers' half


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """`begin immediate`: the lock is taken before the mark is read, so what is read cannot change before it is
    written."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back on a full disk
            db.execute("rollback")
        raise
    db.execute("commit")


class FileWriter(Writer):
    """One connection, one transaction per chunk. Blocks are encoded before the lock is taken."""

    def __init__(self, db: sqlite3.Connection, block_messages: int, codec: str) -> None:
        self._db = db
        self._block_messages = block_messages
        self._codec = codec

    def put(self, chunk: Chunk) -> Put:
        rows = self._rows(chunk, 0)
        try:
            with _transaction(self._db):
                skipped = self._skipped(chunk)
                if skipped:
                    rows = self._rows(chunk, skipped)
                self._db.executemany(
                    "insert into block(topic, topic_id, partition, first, last, count, bytes, body)"
                    " values (?,?,?,?,?,?,?,?)",
                    rows,
                )
                self._db.execute(
                    "update mark set next=max(next, ?), committed=coalesce(?, committed) where topic=? and partition=?",
                    (chunk.end, chunk.committed, chunk.topic, chunk.partition),
                )
        except sqlite3.Error as error:
            raise StorageUnusable(f"{chunk.topic}-{chunk.partition} could not be stored: {error}") from error
        return Put(len(chunk.columns) - skipped, skipped, sum(len(row[-1]) for row in rows))

    def close(self) -> None:
        self._db.close()

    def _skipped(self, chunk: Chunk) -> int:
        """How many messages of the chunk lie below the mark. Called inside the transaction."""
        where = f"{chunk.topic}-{chunk.partition}"
        found = self._db.execute(
            "select next, topic_id from mark where topic=? and partition=?", (chunk.topic, chunk.partition)
        ).fetchone()
        if found is None:
            raise MarkMissing(f"{where} has no mark in the storage; nothing was written")
        mark, topic_id = found
        if topic_id != chunk.topic_id:
            raise TopicRecreated(f"{where} was made again while it was read; nothing was written")
        if chunk.start > mark:
            raise GapRefused(
                f"a range of {where} begins at {chunk.start}, above the mark {mark}: offsets {mark} to "
                f"{chunk.start - 1} would be lost; nothing was written"
            )
        return int(np.searchsorted(chunk.columns.offsets, mark))

    def _rows(self, chunk: Chunk, skipped: int) -> list[tuple[str, str | None, int, int, int, int, int, bytes]]:
        columns = chunk.columns.slice(skipped, len(chunk.columns)) if skipped else chunk.columns
        rows = []
        for part in columns.split(self._block_messages):
            first, last, body = int(part.offsets[0]), int(part.offsets[-1]), encode(part, self._codec)
            rows.append((chunk.topic, chunk.topic_id, chunk.partition, first, last, len(part), len(body), body))
        return rows
