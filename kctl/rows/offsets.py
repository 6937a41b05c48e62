"""The offsets of each partition: `offset_checker`, as the master answers it."""

from __future__ import annotations

from math import inf

from msgspec import Struct


class OffsetRow(Struct, frozen=True):
    topic: str
    partition: int
    current_offset: int | None = None
    kafka_max_offset: int | None = None
    remaining_count: int | None = None
    behind_transaction: int | None = None
    worker: str | None = None
    age_seconds: float | None = None
    stored_messages: int | None = None
    stored_seconds: float | None = None


class Offsets(Struct, frozen=True):
    rows: tuple[OffsetRow, ...] = ()
    """The partitions, sorted by topic and number."""
    stale_after_seconds: float = inf
    """The age above which offsets are too old to show a current lag."""
