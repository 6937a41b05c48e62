"""The write-ahead log of a file storage, and what becomes of it when the disk fails.

Linux tells that it could not write something back once, to each descriptor that was open then (`man 2 fsync`, errors);
to one that is opened later only if nobody has been told yet. What it could not write stays in memory, looks written,
and is never tried again. So everybody who writes holds a descriptor from before his first write, and an error leaves a
doubt: a file, which every process sees. As long as there is one nothing counts as durable. It is removed when all that
is in the log was copied into the database file, that is written anew, and that was synced.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Log", "doubting"]


class Log:
    """The log as one connection uses it; for the thread that uses the connection. Close it before that."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        """Raises sqlite3.Error, OSError."""
        self._db = db
        self._path = path
        # SQLite opens or makes the log with its first read, and then nobody removes it as long as the connection lives.
        db.execute("pragma schema_version").fetchone()
        # Never the database file itself: to close that would drop the locks of all connections of this process.
        self._descriptor = os.open(f"{path}-wal", os.O_RDONLY)
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None

    def begin_sync(self) -> None:
        """Let a thread make durable what is committed by now, unless it is still at it, so that `sync` will find little
        left to do; that also tells what the thread could not."""
        begun = self._begun
        if begun is None or (begun.done() and begun.exception() is None):  # an error stays for `sync`
            self._thread = self._thread or ThreadPoolExecutor(1, "storage-sync")
            self._begun = self._thread.submit(self._write)

    def sync(self) -> None:
        """Make durable what anybody has committed so far.

        All of it is in the log, or was synced when it was copied from there; SQLite itself synced the log's header and
        folder when it began it (https://sqlite.org/pragma.html#pragma_synchronous).

        Raises:
            OSError, sqlite3.Error: it may not be durable. The next call tries again, over a new connection.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        doubts = _doubts(self._path)
        if doubts:
            self._copy()
        self._write()
        for doubt in doubts:
            doubt.unlink(missing_ok=True)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        os.close(self._descriptor)

    def _write(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            _doubt(self._path)
            raise

    def _copy(self) -> None:
        """All of it into the database file, which SQLite syncs; waits for writers and readers of an old picture."""
        is_busy, pages, copied = self._db.execute("pragma wal_checkpoint(full)").fetchone()
        if is_busy or copied < pages:
            raise sqlite3.OperationalError("after an error of the disk the log must be copied, and it is being read")


@contextmanager
def doubting(path: Path) -> Iterator[None]:
    """An error of the disk that SQLite meets in here leaves a doubt: it syncs the log too, and then it was told."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            _doubt(path)
        raise


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-doubts")


def _doubt(path: Path) -> None:
    # It need not survive a power cut: after that the log ends where it is whole, and what it lacks counts nowhere.
    with suppress(OSError):
        _folder(path).mkdir(exist_ok=True)
        (_folder(path) / uuid.uuid4().hex).touch()


def _doubts(path: Path) -> list[Path]:
    """Each has a name of its own, so that only those are removed that were there before the copy began."""
    try:
        return [Path(each.path) for each in os.scandir(_folder(path))]
    except FileNotFoundError:
        return []
