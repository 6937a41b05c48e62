"""What happened in the fleet, in order: kept for a while, counted for good, and published to listeners."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kctl.rows.workers import EventRow
from kctl_agent.wire import JsonObject

__all__ = ["EventFeed", "FleetEvent"]

KEPT = 500


@dataclass(frozen=True, slots=True)
class FleetEvent(EventRow):
    """One thing that happened. What does not apply is None.

    `kind` is `verdict`, `state`, `restart`, `rebalance`, `status`, `operation`, or an agent's own (`rewound`,
    `records_lost`, …).
    """

    worker: str | None = None

    def to_json(self) -> JsonObject:
        first = {"at": self.at, "kind": self.kind, "text": self.text, "worker": self.worker}
        return first | EventRow.to_json(self)  # `super()` alone does not work in a dataclass with slots


class EventFeed:
    """Belongs to one event loop. Events are numbered from 1 in the life of a master."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, FleetEvent]] = deque(maxlen=KEPT)
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

    def publish(self, events: Iterable[FleetEvent]) -> None:
        for event in events:
            self._last += 1
            self._events.append((self._last, event))
            self._totals[event.kind] += 1

    def collected(self) -> None:
        """A collection is complete, its events are published: listeners are woken."""
        self._collections += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, number: int) -> list[tuple[int, FleetEvent]]:
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
