"""The events of the fleet, in order: kept for a while, counted for good, and published to listeners."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kctl_agent.replies.workers import Event

KEPT = 500
_NO_MARKS = frozenset({"verdict", "state", "status"})


class EventFeed:
    """Events of a fleet. Belongs to one event loop. They are numbered from 1 in the life of a master; kinds: `verdict`,
    `state`, `restart`, `rebalance`, `status`, `operation`, or an agent's own (`rewound`, `records_lost`, …)."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self._marks: deque[Event] = deque(maxlen=KEPT)
        self._totals: Counter[str] = Counter()
        self._last = 0
        self._collections = 0
        self._changed = asyncio.Event()

    @property
    def last_number(self) -> int:
        """The number of the last event; 0 before the first."""
        return self._last

    def totals(self) -> Mapping[str, int]:
        """The number of events of each kind."""
        return dict(self._totals)

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self._last += 1
            self._events.append((self._last, event))
            if event.kind not in _NO_MARKS:
                self._marks.append(event)
            self._totals[event.kind] += 1

    def collected(self) -> None:
        """Wakes listeners: a collection is complete, its events are published."""
        self._collections += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, number: int) -> list[tuple[int, Event]]:
        """Returns the kept events after that number, oldest first."""
        return [(its, event) for its, event in self._events if its > number]

    def marks(self, since: float, until: float) -> list[Event]:
        """Returns what changed a fleet's course from `since` to `until`, Unix seconds: rebalances, restarts,
        operations, resets. The last ones are kept, for longer than they are among all events."""
        return [event for event in self._marks if since <= event.at <= until]

    @property
    def collections(self) -> int:
        """The number of complete collections."""
        return self._collections

    async def wait_beyond(self, collections: int) -> int:
        """Waits until there are more collections than that; returns how many there are. May be cancelled."""
        while self._collections <= collections:
            await self._changed.wait()
        return self._collections
