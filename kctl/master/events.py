"""The fleet's events in order: the last ones are kept, all are counted, and listeners are woken."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kctl_agent.replies.workers import Event

KEPT = 500
_NO_MARKS = frozenset({"verdict", "state", "status"})


class EventFeed:
    """The fleet's events. Belongs to one event loop. Numbers events from 1; kinds: `verdict`, `state`, `restart`,
    `rebalance`, `status`, `operation`, `advice`, or an agent's own (`rewound`, `records_lost`, …). Other objects only
    read its attributes."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self._marks: deque[Event] = deque(maxlen=KEPT)
        self._totals: Counter[str] = Counter()
        self.last_number = 0
        self.collections = 0
        self._changed = asyncio.Event()

    def totals(self) -> Mapping[str, int]:
        return dict(self._totals)

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self.last_number += 1
            self._events.append((self.last_number, event))
            if event.kind not in _NO_MARKS:
                self._marks.append(event)
            self._totals[event.kind] += 1

    def collected(self) -> None:
        """Call it after the events of a collection are published."""
        self.collections += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, number: int) -> list[tuple[int, Event]]:
        """Oldest first."""
        return [(its, event) for its, event in self._events if its > number]

    def marks(self, since: float, until: float) -> list[Event]:
        """Returns rebalances, restarts, operations and resets between two Unix times, which are kept longer than other
        events."""
        return [event for event in self._marks if since <= event.at <= until]

    async def wait_beyond(self, collections: int) -> int:
        """Waits for more collections; returns their number."""
        while self.collections <= collections:
            await self._changed.wait()
        return self.collections
