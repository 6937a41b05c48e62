"""What the group has committed, as this worker knows it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka import TopicPartition

__all__ = ["Commits"]

QUIET_SECONDS = 1.0

Offsets = Mapping[TopicPartition, int]


class Commits:
    """`known` may be read from any thread; it is replaced, never changed in place."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._changed_at = time.monotonic()

    def found(self, offsets: Offsets) -> None:
        """What the broker says at an assignment; what was known before is void."""
        self.known = dict(offsets)

    def due(self, positions: Offsets) -> dict[TopicPartition, int]:
        """The positions that are stored and not committed."""
        return {tp: position for tp, position in positions.items() if self.known.get(tp) != position}

    @property
    def is_quiet(self) -> bool:
        """Nothing was committed for a second."""
        return time.monotonic() - self._changed_at >= QUIET_SECONDS

    def done(self, offsets: Offsets) -> None:
        """The broker has taken these offsets. Never blocks: it is called on kafka-python's I/O thread too."""
        self.known = {**self.known, **offsets}
        self._changed_at = time.monotonic()
