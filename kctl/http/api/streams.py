"""Server-sent events: the fleet's events, and a notice at each collection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from kctl.http.source import SnapshotSource
from kctl_agent.errors import Busy
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.workers import Event

_AT_A_TIME = 64
_SILENCE_SECONDS = 15.0
"""Comments at this interval keep proxies from closing a silent stream."""


class Streams:
    """All open streams; belongs to one event loop. `life` differs for each master, because event numbers restart."""

    def __init__(self, source: SnapshotSource, life: str) -> None:
        self._source = source
        self._life = life
        self._open = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    def restart(self) -> None:
        """Ends all open streams; clients may reconnect."""
        self._closing.set()
        self._closing = asyncio.Event()

    def begin(self, last_event_id: str | None, recent: int) -> AsyncIterator[str]:
        """Starts after `last_event_id` if it is this master's, otherwise with the `recent` last events. Raises Busy."""
        if self._open >= _AT_A_TIME:
            raise Busy(f"{_AT_A_TIME} event streams are open already")
        return self._lines(self._first(last_event_id, recent))

    def _first(self, last_event_id: str | None, recent: int) -> int:
        last = self._source.feed.last_number
        if last_event_id:
            life, _, number = last_event_id.rpartition("-")
            # An id of an earlier master: everything that this one has seen is new.
            return min(int(number), last) if life == self._life and number.isdecimal() and len(number) < 20 else 0
        return max(last - recent, 0)

    async def _lines(self, number: int) -> AsyncIterator[str]:
        feed, collections, closing = self._source.feed, -1, self._closing
        self._open += 1
        try:
            yield "retry: 2000\n\n"
            while not closing.is_set():
                for number, event in feed.since(number):  # noqa: B020 - continues after the last one sent
                    yield f"id: {self._life}-{number}\nevent: happened\ndata: {_text(event)}\n\n"
                if feed.collections != collections:
                    collections = feed.collections
                    snapshot = self._source.latest()
                    sequence = None if snapshot is None else snapshot.sequence
                    yield f"event: collected\ndata: {json.dumps({'sequence': sequence})}\n\n"
                if not await self._woken(collections, closing):
                    yield ": still here\n\n"
        finally:
            self._open -= 1

    async def _woken(self, collections: int, closing: asyncio.Event) -> bool:
        waiting = [
            asyncio.ensure_future(self._source.feed.wait_beyond(collections)),
            asyncio.ensure_future(closing.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waiting, timeout=_SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for each in waiting:
                each.cancel()


def _text(event: Event) -> str:
    return json.dumps({"worker": None, **encoded(event)})
