"""Dead letters of the last minutes, counted for the verdict on a fleet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError
from kctl_agent.replies.block_size import RecentDeadLetters

if TYPE_CHECKING:
    from kctl_agent.storage.base import DeadLetterStore

_READ_SECONDS = 2.0


def recent(store: DeadLetterStore) -> RecentDeadLetters | None:
    """Returns the dead letters of the last `RECENT_DEAD_SECONDS`; None if there are none. Raises StorageError, also
    after two seconds."""
    deadline = time.monotonic() + _READ_SECONDS

    def in_time(_: int) -> None:
        if time.monotonic() > deadline:
            raise StorageError("the dead letters of the last minutes could not be read in time")

    return store.recent_dead(in_time)
