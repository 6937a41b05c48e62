"""Dead letters as an executor writes them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.storage.selection import Selection
from tests.lake_tables import TP
from tests.table_conformance import DEAD_LETTER_SCHEMA, dead_rows
from tests.table_conformance import write as write_rows

NOW = datetime.now(UTC)


def written(
    table: DeadLetterTable,
    batch: LakeBatch,
    offsets: Sequence[int],
    at: datetime | Sequence[datetime] = NOW,
    **more: Any,
) -> LakeBatch:
    """`more` are columns of all of them."""
    earlier = table.earlier_try(batch)
    dead_letters = table.begin(batch, DEAD_LETTER_SCHEMA, earlier)
    offsets = [offset for offset in offsets if (*TP, offset) not in earlier.messages]
    times = [at] * len(offsets) if isinstance(at, datetime) else at
    dead_letters.folder.make()
    write_rows(dead_letters.folder, dead_rows(table, batch, TP, offsets, "no JSON", times, **more))
    return dead_letters


def dead(table: DeadLetterTable, selection: Selection | None = None) -> list[int]:
    return sorted(each.offset for each in table.dead(selection or Selection()))
