"""Counts the dead letters of the last minutes, for the verdict on a fleet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError
from kctl_agent.replies.block_size import RECENT_DEAD_SECONDS, RecentDeadLetters
from kctl_agent.storage.causes import public_class
from kctl_agent.storage.selection import Selection

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

    groups = store.dead_groups(Selection(died_from=time.time() - RECENT_DEAD_SECONDS), 0, in_time)
    if not groups:
        return None
    first, last = min(each.first_died for each in groups), max(each.last_died for each in groups)
    most = max(groups, key=lambda each: each.count)
    return RecentDeadLetters(sum(each.count for each in groups), public_class(most.cause.error_class), first, last)
