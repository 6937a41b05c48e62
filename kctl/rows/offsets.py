"""How far each partition is read: `offset_checker`, as the master answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kctl.rows import fields
from kctl.rows.fields import NUMBER_OR_NONE, TEXT, TEXT_OR_NONE, WHOLE, WHOLE_OR_NONE, Kind
from kctl_agent.wire import JsonObject

__all__ = ["OffsetRow", "Offsets", "offsets"]


class OffsetRow(NamedTuple):
    topic: str
    partition: int
    current_offset: int | None
    kafka_max_offset: int | None
    remaining_count: int | None
    worker: str | None
    age_seconds: float | None


class Offsets(NamedTuple):
    """All rows, column by column: there may be a hundred thousand, and a table is made of columns too."""

    topic: Sequence[str] = ()
    partition: Sequence[int] = ()
    current_offset: Sequence[int | None] = ()
    kafka_max_offset: Sequence[int | None] = ()
    remaining_count: Sequence[int | None] = ()
    worker: Sequence[str | None] = ()
    age_seconds: Sequence[float | None] = ()

    @property
    def rows(self) -> tuple[OffsetRow, ...]:
        return tuple(map(OffsetRow._make, zip(*self, strict=True)))


_KINDS: dict[str, Kind] = {
    "topic": TEXT,
    "partition": WHOLE,
    "current_offset": WHOLE_OR_NONE,
    "kafka_max_offset": WHOLE_OR_NONE,
    "remaining_count": WHOLE_OR_NONE,
    "worker": TEXT_OR_NONE,
    "age_seconds": NUMBER_OR_NONE,
}


def offsets(result: JsonObject) -> Offsets:
    return Offsets._make(fields.columns(result, "rows", _KINDS))
