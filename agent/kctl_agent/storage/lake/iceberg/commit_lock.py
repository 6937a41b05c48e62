"""One commit to an Iceberg table at a time, of all processes of this machine.

What is written for a commit that others get ahead of (manifests, the metadata of the table) is written in vain, and
takes so long that still more of them are overtaken. It is the catalog that decides which is taken; the lock only saves
work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl_agent.storage.lake.folder import FOLDER

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder import Folder

__all__ = ["commit_lock"]

WAIT_SECONDS = 5.0
"""For so long others are waited for, one of which may be frozen: as SQLite does for its own lock."""
POLL_SECONDS = 0.005


@contextmanager
def commit_lock(table: Folder) -> Iterator[None]:
    """Taken, or waited for as long as that is worth while. Raises StorageUnusable."""
    until, pause = time.monotonic() + WAIT_SECONDS, threading.Event()
    while True:
        with table.lock(f"{FOLDER}/commit.lock") as is_ours:
            if is_ours or time.monotonic() >= until:
                yield
                return
        pause.wait(POLL_SECONDS)
