"""Copies the write-ahead log of a file storage into the database file, without SQLite's WAL-reset bug.

The bug (https://sqlite.org/wal.html#walresetbug; SQLite 3.7.0 to 3.51.2, but not 3.44.6 and 3.50.7): all of the log was
copied, a second checkpoint starts, and in that moment another connection commits and so begins the log anew. The
checkpoint records frames of the new log as copied; a later one leaves them out, and they are gone in the end.

It needs a commit that begins the log anew while a checkpoint runs, which SQLite's own locks exclude here:

- `reading`: a read transaction that is older than the checkpoint. The log begins anew only when nobody reads from it
  (`walRestartLog` in wal.c); and if all was copied before, the checkpoint can neither copy nor record anything.
- `writing`: the write lock. Nobody commits.

The checkpoint that SQLite makes at a commit is turned off (`schema.connect`). The one when the last connection closes
is no danger: SQLite makes it only while it has the whole file to itself.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kctl_agent.storage.file.schema import connect
from kctl_agent.storage.file.sync_failures import noting_disk_errors, sync_failures

WRITE_LOCK_MS = 1000
"""How long a copy waits for commits other than puts to end; then the log grows on until the next copy."""

_copies: dict[Path, tuple[float, threading.Thread]] = {}
"""When this process began to copy last, by `time.monotonic()`, and the thread that does; a forked child has none."""


def begin_copy(path: Path, at_most_every_seconds: float = 0.0) -> bool:
    """Copy in a thread; False when this process is at it, or has begun to less than so long ago."""
    if path in _copies:
        began, thread = _copies[path]
        if thread.is_alive() or time.monotonic() - began < at_most_every_seconds:
            return False
    thread = threading.Thread(target=_copy_beside, args=(path,), name="storage-copy", daemon=True)
    _copies[path] = time.monotonic(), thread
    thread.start()
    return True


def _copy_beside(path: Path) -> None:
    with suppress(sqlite3.Error, OSError):  # what fails here, the next copy does or reports
        copy(path)


def copy(path: Path) -> None:
    """Copy the log while others read and write, then the rest while nobody writes, so that it can begin anew: in the
    turn of the puts, or it would hardly ever get the write lock. After an error of the disk nothing is copied, for the
    log may be another (`recovery`). Raises sqlite3.Error: others had the write lock, or a fault; OSError."""
    if sync_failures(path):
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with noting_disk_errors(path), closing(connect(path)) as db, closing(connect(path)) as guard:
            with reading(guard):
                _checkpoint(db)
            guard.execute(f"pragma busy_timeout={WRITE_LOCK_MS}")
            with in_turn(folder), writing(guard):
                _checkpoint(db)
    finally:
        os.close(folder)


@contextmanager
def in_turn(folder: int) -> Iterator[None]:
    """Hold the kernel's lock on the folder, a descriptor of one's own: it wakes the next at once."""
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


@contextmanager
def reading(guard: sqlite3.Connection) -> Iterator[None]:
    """A read transaction: nobody can begin the log anew beneath a checkpoint in here."""
    guard.execute("begin")
    try:
        guard.execute("select 1 from sqlite_master").fetchone()
        yield
    finally:
        guard.execute("rollback")


@contextmanager
def writing(guard: sqlite3.Connection) -> Iterator[None]:
    """The write lock: nobody can commit beneath a checkpoint in here."""
    guard.execute("begin immediate")
    try:
        yield
    finally:
        guard.execute("rollback")


def _checkpoint(db: sqlite3.Connection) -> None:
    """Copy as much as no reader keeps back. Never without `reading` or `writing`."""
    db.execute("pragma wal_checkpoint(passive)").fetchone()
