"""Doubts: that the disk may not have what was written to a file storage, known to every process that uses it.

Each is a file of its own in a folder beside the storage. `file_log` says when nothing counts as durable.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["note_sync_failure", "noting_disk_errors", "sync_failures"]


@contextmanager
def noting_disk_errors(path: Path) -> Iterator[None]:
    """An error of the disk that SQLite meets in here leaves a doubt: it syncs the log too, and then it was told."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            note_sync_failure(path)
        raise


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-doubts")


def note_sync_failure(path: Path) -> None:
    # It need not survive a power cut: after that the log ends where it is whole, and what it lacks counts nowhere.
    with suppress(OSError):
        _folder(path).mkdir(exist_ok=True)
        (_folder(path) / uuid.uuid4().hex).touch()


def sync_failures(path: Path) -> list[Path]:
    """Each has a name of its own, so that only those are removed that were there before the copy began."""
    try:
        return [Path(each.path) for each in os.scandir(_folder(path))]
    except FileNotFoundError:
        return []
