"""The write-ahead log of a file storage, and its syncs when the disk fails.

Linux reports a failed write-back once, to each descriptor open at that time (`man 2 fsync`); the pages then count as
written and are never retried. So every writer opens a descriptor before its first write and notes an error in a file
that every process sees. While the note exists, nothing counts as durable. Earlier reads and writes never count as
durable, even after a `recovery`.
"""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kctl_agent.storage.file.recovery import note_sync_failure, noted
from kctl_agent.storage.file.schema import LOG_BYTES


class Log:
    """One connection's view of the log, for that connection's thread. Close it before the connection."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._path = path
        self._noted = noted(path)
        # SQLite opens or makes the log at its first read, and does not remove it while the connection is open.
        db.execute("pragma schema_version").fetchone()
        # Never the database file itself: closing that would drop the locks of all connections of this process.
        self._descriptor = os.open(f"{path}-wal", os.O_RDONLY)
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[None] | None = None

    @property
    def is_long(self) -> bool:
        return self._stat().st_size > LOG_BYTES

    @property
    def is_in_place(self) -> bool:
        try:
            return self._stat().st_size > 0 and os.path.samestat(self._stat(), os.stat(f"{self._path}-wal"))
        except FileNotFoundError:
            return False

    @property
    def is_current(self) -> bool:
        return noted(self._path) == self._noted

    def begin_sync(self) -> None:
        """Starts a sync in a thread. `sync` then has less to do, and raises the thread's error."""
        begun = self._begun
        if begun is None or (begun.done() and begun.exception() is None):  # an error stays for `sync`
            self._thread = self._thread or ThreadPoolExecutor(1, "storage-sync")
            self._begun = self._thread.submit(self._write)

    def sync(self) -> None:
        """Makes durable what any process has committed so far: commits are in the log, or were synced when they were
        copied.

        SQLite synced the log's header and folder (https://sqlite.org/pragma.html#pragma_synchronous). Raises OSError,
        even if another process received the error. Then call `recover`, make a new `Log` and check what is stored.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        self._write()
        if not self.is_current:
            raise OSError("the disk failed in the meantime")

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
