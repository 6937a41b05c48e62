"""Failed syncs of a file storage: the disk may not have what was written. Known to every process that uses the storage.

Each is a file of its own in a folder beside the storage. `log` decides when nothing counts as durable.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["note_sync_failure", "noting_disk_errors", "sync_failures"]

FOLDERS = ("sync-failures", "doubts")
"""Behind the storage's name: the one that is written, and the one of files of schema version 3 and before."""


@contextmanager
def noting_disk_errors(path: Path) -> Iterator[None]:
    """An error of the disk that SQLite meets in here is noted: SQLite syncs the log too, and the kernel reports what it
    could not write only once."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            note_sync_failure(path)
        raise


def note_sync_failure(path: Path) -> None:
    # It need not survive a power cut: after that the log ends where it is whole, and what it lacks counts nowhere.
    folder = _folder(path, FOLDERS[0])
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        (folder / uuid.uuid4().hex).touch()


def sync_failures(path: Path) -> list[Path]:
    """Each has a name of its own, so that only those are removed that were there before the copy began."""
    found: list[Path] = []
    for name in FOLDERS:
        with suppress(FileNotFoundError):
            found += [Path(each.path) for each in os.scandir(_folder(path, name))]
    return found


def _folder(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}-{name}")
