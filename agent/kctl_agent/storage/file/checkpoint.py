"""Copies a file storage's write-ahead log into the database file, avoiding SQLite's WAL-reset bug.

SQLite 3.7.0 to 3.51.2, except 3.44.6 and 3.50.7, loses commits as follows (https://sqlite.org/wal.html#walresetbug).
One checkpoint copies the whole log, and a second one starts. At that moment another connection commits, which restarts
the log. The second checkpoint records frames of the restarted log as copied. A later checkpoint skips these frames.

Two of SQLite's own locks prevent a commit that restarts the log during a checkpoint:

- `reading`: a read transaction that began before the checkpoint. It keeps the log from restarting (`walRestartLog` in
  wal.c), unless the whole log was copied before the transaction. In that case the checkpoint has nothing to copy.
- `writing`: the write lock, so that no other connection commits.

SQLite's checkpoint at commit is turned off (`schema.connect`). SQLite's checkpoint at the close of the last connection
is safe, because SQLite locks the whole file for it.
"""

import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kctl_agent.paths import locked
from kctl_agent.storage.file.log import noting_disk_errors, sync_failures
from kctl_agent.storage.file.schema import connect

_copies: dict[Path, tuple[float, threading.Thread]] = {}


def begin_copy(path: Path, at_most_every_seconds: float = 0.0) -> bool:
    """Starts to copy the log in a thread. Returns False if this process is already copying, or if it started a copy
    less than `at_most_every_seconds` ago."""
    if path in _copies:
        began, thread = _copies[path]
        if thread.is_alive() or time.monotonic() - began < at_most_every_seconds:
            return False
    thread = threading.Thread(target=_copy_beside, args=(path,), name="storage-copy", daemon=True)
    _copies[path] = time.monotonic(), thread
    thread.start()
    return True


def _copy_beside(path: Path) -> None:
    with suppress(sqlite3.Error, OSError):  # the next copy repeats or reports it
        copy(path)


def copy(path: Path) -> None:
    """Copies the log while other connections read and write. Then copies the remaining frames while no connection
    writes, so that the log can restart.

    After a disk error, does not copy until `recover` has repaired the log.
    """
    if sync_failures(path):
        return
    with noting_disk_errors(path), closing(connect(path)) as db, closing(connect(path)) as guard:
        with reading(guard):
            _checkpoint(db)
        guard.execute("pragma busy_timeout=1000")  # for commits other than puts; then the log grows until the next copy
        # In turn with the puts, because otherwise this would hardly ever get the write lock.
        with locked(path.parent), writing(guard):
            _checkpoint(db)


@contextmanager
def in_turn(folder: int) -> Iterator[None]:
    """Locks the folder whose descriptor is `folder`. When the lock is released, the next waiter wakes at once."""
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


@contextmanager
def reading(guard: sqlite3.Connection) -> Iterator[None]:
    guard.execute("begin")
    try:
        guard.execute("select 1 from sqlite_master").fetchone()
        yield
    finally:
        guard.execute("rollback")


@contextmanager
def writing(guard: sqlite3.Connection) -> Iterator[None]:
    guard.execute("begin immediate")
    try:
        yield
    finally:
        guard.execute("rollback")


def _checkpoint(db: sqlite3.Connection) -> None:
    db.execute("pragma wal_checkpoint(passive)").fetchone()  # safe only within `reading` or `writing`
