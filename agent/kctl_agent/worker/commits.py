"""What the group has committed, as this worker knows it, and what the storage's marks still have to be told of it.

A mark learns the committed offset with the next put; one that is never followed by a put is told here. Without that a
reset of the group to an offset between two commits would look like a crash between put and commit, and would not be
honoured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from kafka import TopicPartition

from kctl_agent.storage.base import Storage, StorageError

__all__ = ["Commits"]

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0

Offsets = Mapping[TopicPartition, int]


class Commits:
    """`known` may be read from any thread; it is replaced, never changed in place."""

    def __init__(self, storage: Storage) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._storage = storage
        self._unrecorded: dict[TopicPartition, int] = {}
        self._noted_at = time.monotonic()

    def found(self, offsets: Offsets) -> None:
        """What the broker says at an assignment; what was known before is void."""
        self.known = dict(offsets)

    def due(self, positions: Offsets) -> dict[TopicPartition, int]:
        """The positions that are stored and not committed."""
        return {tp: position for tp, position in positions.items() if self.known.get(tp) != position}

    @property
    def is_quiet(self) -> bool:
        """Nothing was committed for a second."""
        return time.monotonic() - self._noted_at >= QUIET_SECONDS

    def done(self, offsets: Offsets) -> None:
        """The broker has taken these offsets. Never blocks: it is called on kafka-python's I/O thread too."""
        self.known = {**self.known, **offsets}
        self._unrecorded = {**self._unrecorded, **offsets}
        self._noted_at = time.monotonic()

    def record(self, *, if_quiet: bool = False) -> None:
        """Tell the marks; with `if_quiet` only when nothing was committed for a second (a put would have told them)."""
        if if_quiet and not self.is_quiet:
            return
        offsets, self._unrecorded = self._unrecorded, {}
        if not offsets:
            return
        try:
            self._storage.record_committed({tuple(tp): offset for tp, offset in offsets.items()})
        except StorageError as error:
            log.warning("the committed offsets were not recorded: %s", error)
            self._unrecorded = {**offsets, **self._unrecorded}  # tried again when it is quiet, or told by the next put
            self._noted_at = time.monotonic()
