"""How much memory the supervised processes take, each with all that it has started, told from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from kctl.master.process import processes

__all__ = ["Memory"]

LOOK_SECONDS = 10.0
"""Between two looks at every process of the machine: what was started since then is not counted yet. To look at those
that are known costs as much as they are, to look at all as much as the machine has."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """One thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: dict[int, list[int]] = {}
        """Session to its processes, as they were at the last look at all."""
        self._looked_at = float("-inf")

    def measured(self, sessions: Iterable[int], *, look_at_all: bool = False) -> dict[int, int]:
        """Resident bytes per session, all its processes together; those of which nothing lives are absent.
        `look_at_all` where something is starting: its JVM must be in its first size."""
        wanted = set(sessions)
        now = self._clock()
        if look_at_all or now - self._looked_at >= LOOK_SECONDS or not wanted <= self._members.keys():
            self._looked_at = now
            self._members = {session: [] for session in wanted}
            for process in processes():
                if process.session in wanted:
                    self._members[process.session].append(process.pid)
        pages = {
            session: [
                process.resident_pages
                for process in processes(self._members[session])
                if process.session == session  # a pid may be somebody else's by now
            ]
            for session in wanted
        }
        return {session: sum(found) * _PAGE_BYTES for session, found in pages.items() if found}
