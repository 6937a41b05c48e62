"""One upkeep of a table at a time, whichever process and fleet does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl_agent.storage.base import StorageError
from kctl_agent.storage.lake.folder import FOLDER

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder import Folder

__all__ = ["UpkeepBusy", "upkeep_lock"]


class UpkeepBusy(StorageError):
    """Another process compacts or vacuums this table."""

    code = "upkeep_busy"
    retriable = True


@contextmanager
def upkeep_lock(table: Folder) -> Iterator[None]:
    """For one process at a time.

    Raises UpkeepBusy, StorageUnusable.
    """
    with table.lock_once(f"{FOLDER}/upkeep.lock") as is_ours:
        if not is_ours:
            raise UpkeepBusy(f"another process compacts or vacuums the table {table}: wait for its end")
        yield
