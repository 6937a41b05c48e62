"""Notes failed syncs of a file storage for every process that uses it, as files in a folder next to the storage; then
restores the write-ahead log to what the disk really has.

Pages that Linux could not write back stay in memory only until the memory is needed, and SQLite does not check frames
when it reads or copies them. So recovery rewrites the log as read, syncs it, and has SQLite rebuild its index up to the
last commit whose frames are intact (https://sqlite.org/walformat.html#recovery). Later commits never counted.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kctl_agent.storage.file.schema import BUSY_SECONDS

RECOVERY = "recovery-"
PART_BYTES = 1 << 20

INDEX_HEADERS_BYTES = 2 * 48
"""The two copies of the header at the start of `-shm`; SQLite rebuilds an index whose header is damaged."""

_FORGET = "import sys; open(sys.argv[1], 'r+b').write(bytes(int(sys.argv[2])))"


@contextmanager
def noting_disk_errors(path: Path) -> Iterator[None]:
    """Notes disk errors that SQLite meets: it syncs the log too, and the kernel reports an error only once."""
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
    """The names of noted failures. If they are the same as before, no sync has failed in the meantime."""
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
    """Does nothing unless a sync has failed. Waits up to 30 s. Raises OSError, sqlite3.Error; then call it again."""
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
    """`begin immediate` first reads page 1, which may be a lost one."""
    try:
        db.execute("begin immediate")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        _forget(index)
        db.execute("begin immediate")


def _rewrite(log: Path) -> None:
    descriptor = os.open(log, os.O_RDWR)
    try:
        start = 0
        while part := os.pread(descriptor, PART_BYTES, start):
            start += os.pwrite(descriptor, part, start)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _forget(index: Path) -> None:
    """Clears the index in another process: a process that closes the file loses SQLite's locks on it."""
    command = [sys.executable, "-I", "-S", "-c", _FORGET, str(index), str(INDEX_HEADERS_BYTES)]
    subprocess.run(command, check=True, capture_output=True)
