"""Goes back to what the disk really has of a file storage's write-ahead log, once the disk has failed.

What Linux could not write back stays in memory only until memory is wanted, and SQLite does not check frames when it
reads or copies them. So the log is written anew as it is read, and synced, and its index made anew, up to the last
commit whose frames are whole (https://sqlite.org/walformat.html#recovery). What came behind never counted.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from kctl_agent.storage.file.schema import BUSY_SECONDS
from kctl_agent.storage.file.sync_failures import note_recovery, noting_disk_errors, sync_failures

PART_BYTES = 1 << 20

INDEX_HEADERS_BYTES = 2 * 48
"""Two copies of one header, the first things in `-shm`; an index whose header is not whole is made anew."""

_FORGET = "import sys; open(sys.argv[1], 'r+b').write(bytes(int(sys.argv[2])))"


def recover(path: Path) -> None:
    """Nothing, unless a sync has failed since the last time. Waits for readers and writers, 30 seconds at most. Raises
    OSError, sqlite3.Error: the disk still fails, or somebody reads for longer. The next call tries again."""
    if not sync_failures(path):
        return
    index = Path(f"{path}-shm")
    with noting_disk_errors(path), closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)) as db:
        _begin(db, index)
        found = sync_failures(path)
        if not found:  # another process was faster
            return
        _write_anew(Path(f"{path}-wal"))
        _forget(index)
        db.execute("commit")  # not "rollback", for which SQLite looks into the index
        db.execute("begin immediate")  # SQLite makes the index, before anybody writes by it
        note_recovery(path, found)


def _begin(db: sqlite3.Connection, index: Path) -> None:
    """Let nobody else commit; SQLite reads the first page for that, which may be among those that are gone."""
    try:
        db.execute("begin immediate")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        _forget(index)
        db.execute("begin immediate")


def _write_anew(log: Path) -> None:
    descriptor = os.open(log, os.O_RDWR)
    try:
        start = 0
        while part := os.pread(descriptor, PART_BYTES, start):
            start += os.pwrite(descriptor, part, start)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _forget(index: Path) -> None:
    """In a process of its own: one that closes the file would lose the locks that SQLite has on it."""
    command = [sys.executable, "-I", "-S", "-c", _FORGET, str(index), str(INDEX_HEADERS_BYTES)]
    subprocess.run(command, check=True, capture_output=True)
