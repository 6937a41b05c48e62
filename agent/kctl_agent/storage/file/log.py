"""The write-ahead log of a file storage, and its recovery after a disk error.

Linux reports a failed write-back once to each descriptor open at that time (`man 2 fsync`). After that, the pages count
as written and are never retried. So every writer opens a descriptor before its first write. A writer that gets an error
records it in a file. Until `recover` removes this file, no process counts a commit as durable. On connections opened
before the recovery, `Log.sync` raises an error, because what they read or wrote may be lost.

A page that Linux could not write stays in memory only until the memory is needed. After that, SQLite would read the old
bytes on the disk without noticing, because it verifies frames only when it rebuilds its index. So `recover` writes the
log again from memory and syncs it. Then SQLite rebuilds the index up to the last commit whose frames are intact
(https://sqlite.org/walformat.html#recovery). Later commits are lost, but were never counted as durable.
"""

import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kctl_agent.storage.file.schema import BUSY_SECONDS, LOG_BYTES

RECOVERY = "recovery-"

INDEX_HEADERS_BYTES = 2 * 48
"""The two copies of the header at the start of `-shm`; SQLite rebuilds an index whose header is damaged."""

_FORGET = "import sys; open(sys.argv[1], 'r+b').write(bytes(int(sys.argv[2])))"


@contextmanager
def noting_disk_errors(path: Path) -> Iterator[None]:
    """Records disk errors of SQLite in this block, because the kernel may report them to SQLite's descriptor only."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            note_sync_failure(path)
        raise


def note_sync_failure(path: Path) -> None:
    # The note need not survive a power cut: then the log ends where it is intact, and lost frames never counted.
    folder = _folder(path)
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        (folder / uuid.uuid4().hex).touch()


def note_recovery(path: Path, failures: list[Path]) -> None:
    folder = _folder(path)
    before = list(folder.glob(f"{RECOVERY}*"))
    folder.mkdir(exist_ok=True)
    (folder / f"{RECOVERY}{uuid.uuid4().hex}").touch()
    for each in failures + before:
        each.unlink(missing_ok=True)


def noted(path: Path) -> frozenset[str]:
    """Returns the file names of recorded failures and recoveries. Each failed sync changes the result."""
    return frozenset(each.name for each in _entries(path))


def sync_failures(path: Path) -> list[Path]:
    return [each for each in _entries(path) if not each.name.startswith(RECOVERY)]


def _entries(path: Path) -> list[Path]:
    try:
        return list(_folder(path).iterdir())
    except FileNotFoundError:
        return []


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-sync-failures")


def recover(path: Path) -> None:
    """Repairs the log if a sync failed. Waits up to 30 s for the write lock. Retry after OSError or sqlite3.Error."""
    if not sync_failures(path):
        return
    index = Path(f"{path}-shm")
    with noting_disk_errors(path), closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)) as db:
        _begin(db, index)
        found = sync_failures(path)
        if not found:  # another process was faster
            return
        _rewrite(Path(f"{path}-wal"))
        _forget(index)
        db.execute("commit")  # not "rollback", for which SQLite looks into the index
        db.execute("begin immediate")  # SQLite rebuilds the index before the next write
        note_recovery(path, found)


def _begin(db: sqlite3.Connection, index: Path) -> None:
    try:
        db.execute("begin immediate")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:  # `begin` reads page 1, whose frame may be lost
        _forget(index)
        db.execute("begin immediate")


def _rewrite(log: Path) -> None:
    descriptor = os.open(log, os.O_RDWR)
    try:
        start = 0
        while part := os.pread(descriptor, 1 << 20, start):
            start += os.pwrite(descriptor, part, start)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _forget(index: Path) -> None:
    # By a child process: if this one closed the file, it would drop SQLite's locks on it.
    command = [sys.executable, "-I", "-S", "-c", _FORGET, str(index), str(INDEX_HEADERS_BYTES)]
    subprocess.run(command, check=True, capture_output=True)


class Log:
    """The log as one connection sees it. Use it in one thread at a time, and close it before the connection."""

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
        """Starts a sync in a thread, so that `sync` has less to do. If the thread fails, `sync` raises its error."""
        begun = self._begun
        if begun is None or (begun.done() and begun.exception() is None):  # an error stays for `sync`
            self._thread = self._thread or ThreadPoolExecutor(1, "storage-sync")
            self._begun = self._thread.submit(self._write)

    def sync(self) -> None:
        """Makes all commits so far durable, also those of other processes. If a sync of any process has failed since
        this `Log` was made, raises OSError. In that case, call `recover`, make a new `Log` and check what is stored."""
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
            # SQLite itself syncs copied commits, header and folder (https://sqlite.org/pragma.html#pragma_synchronous).
            os.fdatasync(self._descriptor)
        except OSError:
            note_sync_failure(self._path)
            raise
