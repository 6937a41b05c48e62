"""What happened in the fleet, in order: kept for a while, counted for good, and published to listeners."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kctl_agent.replies.workers import Event

__all__ = ["EventFeed"]

KEPT = 500


class EventFeed:
    """Belongs to one event loop. Events are numbered from 1 in the life of a master; their kind is `verdict`, `state`,
    `restart`, `rebalance`, `status`, `operation`, or an agent's own (`rewound`, `records_lost`, …)."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, Event]] = deque(maxlen=KEPT)
        self._totals: Counter[str] = Counter()
        self._last = 0
        self._collections = 0
        self._changed = asyncio.Event()

    @property
    def last_number(self) -> int:
        """Of the last event; 0 before the first."""
        return self._last

    def totals(self) -> Mapping[str, int]:
        """How many events of each kind there were."""
        return dict(self._totals)

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self._last += 1
            self._events.append((self._last, event))
            self._totals[event.kind] += 1

    def collected(self) -> None:
        """A collection is complete, its events are published: listeners are woken."""
        self._collections += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, number: int) -> list[tuple[int, Event]]:
        """The kept events after that number, oldest first."""
        return [(its, event) for its, event in self._events if its > number]

    @property
    def collections(self) -> int:
        """How many collections are complete."""
        return self._collections

    async def wait_beyond(self, collections: int) -> int:
        """Returns how many there are as soon as there are more than that; may be cancelled."""
        while self._collections <= collections:
            await self._changed.wait()
        return self._collections
