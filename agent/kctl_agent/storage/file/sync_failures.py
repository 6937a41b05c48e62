"""Failed syncs of a file storage: the disk may not have what was written. Known to every process that uses the storage.

Each is a file in a folder beside the storage, until `recovery` has come after it, which leaves one too.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RECOVERY = "recovery-"
"""Begins the name of a file that a recovery has left."""


@contextmanager
def noting_disk_errors(path: Path) -> Iterator[None]:
    """An error of the disk that SQLite meets in here is noted: it syncs the log too, and the kernel reports once."""
    try:
        yield
    except sqlite3.Error as error:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF == sqlite3.SQLITE_IOERR:
            note_sync_failure(path)
        raise


def note_sync_failure(path: Path) -> None:
    # It need not survive a power cut: after that the log ends where it is whole, and what it lacks counts nowhere.
    folder = _folder(path)
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        (folder / uuid.uuid4().hex).touch()


def note_recovery(path: Path, failures: list[Path]) -> None:
    """These failures have been seen to. What was noted before is no longer what is noted, for all who look (`noted`).
    Raises OSError: it could not be noted; the failures still stand."""
    folder = _folder(path)
    before = list(folder.glob(f"{RECOVERY}*"))
    folder.mkdir(exist_ok=True)
    (folder / f"{RECOVERY}{uuid.uuid4().hex}").touch()
    for each in failures + before:
        each.unlink(missing_ok=True)


def noted(path: Path) -> frozenset[str]:
    """Names that are never given again: where they are the same as before, no sync has failed meanwhile."""
    return frozenset(each.name for each in _entries(path))


def sync_failures(path: Path) -> list[Path]:
    """Those that no recovery has come after yet."""
    return [each for each in _entries(path) if not each.name.startswith(RECOVERY)]


def _entries(path: Path) -> list[Path]:
    try:
        return list(_folder(path).iterdir())
    except FileNotFoundError:
        return []


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}-sync-failures")
