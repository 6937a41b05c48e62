"""One upkeep of a table at a time, whichever process and fleet does it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kctl_agent.storage.base import StorageError, StorageUnusable
from kctl_agent.storage.lake.plans import FOLDER

__all__ = ["UpkeepBusy", "file_lock", "upkeep_lock"]


class UpkeepBusy(StorageError):
    """Another process compacts or vacuums this table."""

    code = "upkeep_busy"
    retriable = True


@contextmanager
def upkeep_lock(table: Path) -> Iterator[None]:
    """For one process at a time; the kernel frees it when that ends, however it does.

    Raises UpkeepBusy, StorageUnusable.
    """
    with file_lock(table / FOLDER / "upkeep.lock") as is_ours:
        if not is_ours:
            raise UpkeepBusy(f"another process compacts or vacuums the table {table}: wait for its end")
        yield


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Whether the lock of this file is ours for the time of the block; nobody is waited for. Raises StorageUnusable."""
    try:
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageUnusable(f"{path} cannot be made: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
