"""Notes failed syncs of a file storage for every process that uses it: each is a file in a folder next to the
storage."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RECOVERY = "recovery-"


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
