"""The write-ahead log of a file storage, and what becomes of it when the disk fails.

Linux reports once, to each descriptor that was open then, that it could not write something back (`man 2 fsync`); it
counts as written, and is never tried again. So every writer holds a descriptor from before its first write, and an
error is noted in a file, which every process sees. While there is one nothing counts as durable; nor does what was read
or written before, when one was noted meanwhile, whether or not `recovery` came after it.
"""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kctl_agent.storage.file.schema import LOG_BYTES
from kctl_agent.storage.file.sync_failures import note_sync_failure, noted


class Log:
    """The log as one connection uses it; for the thread that uses the connection. Close it before that."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        """Watch the write-ahead log of this database. Raises sqlite3.Error, OSError."""
        self._path = path
        self._noted = noted(path)
        # SQLite opens or makes the log with its first read, and then nobody removes it as long as the connection lives.
        db.execute("pragma schema_version").fetchone()
        # Never the database file itself: to close that would drop the locks of all connections of this process.
        self._descriptor = os.open(f"{path}-wal", os.O_RDONLY)
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None

    @property
    def is_long(self) -> bool:
        """It should be copied into the database file (`checkpoint.begin_copy`)."""
        return self._stat().st_size > LOG_BYTES

    @property
    def is_in_place(self) -> bool:
        """It still is the log at its path, and something is in it."""
        try:
            return self._stat().st_size > 0 and os.path.samestat(self._stat(), os.stat(f"{self._path}-wal"))
        except FileNotFoundError:
            return False

    @property
    def is_current(self) -> bool:
        """No sync has failed since this was made. If one has, the connection's descriptors would report it too."""
        return noted(self._path) == self._noted

    def begin_sync(self) -> None:
        """Let a thread make durable what is committed by now; `sync` raises what it met, and has less to do."""
        begun = self._begun
        if begun is None or (begun.done() and begun.exception() is None):  # an error stays for `sync`
            self._thread = self._thread or ThreadPoolExecutor(1, "storage-sync")
            self._begun = self._thread.submit(self._write)

    def sync(self) -> None:
        """Make durable what anybody has committed so far. All of it is in the log, or was synced when it was copied
        from there; SQLite itself synced the log's header and folder when it began it
        (https://sqlite.org/pragma.html#pragma_synchronous). Raises OSError: it may not be durable, also because another
        process was given the error. Make another log, after `recover`, and look what is stored."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        self._write()
        if not self.is_current:
            raise OSError("the disk has failed meanwhile")

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        os.close(self._descriptor)

    def _stat(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def _write(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            note_sync_failure(self._path)
            raise
