"""What a version of a Delta table holds: files, bytes, rows, by the statistics in its log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.log import committed_at
from kctl_agent.storage.room import TableCounts

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["TableCounter", "count", "is_small"]

SMALL = 0.5
"""Of the size that compaction aims at, as Delta's own auto compaction counts. What fills files is not cut to fit, so
many that are as large as they will ever be are a little below their target."""
COUNT_SECONDS = 10.0
"""Between two counts at least."""
COUNT_SHARE = 0.01
"""Of the time is spent with counting at the most: of 100,000 files it takes 0.1 s."""


def is_small(size: int, target_file_bytes: int) -> bool:
    return size < target_file_bytes * SMALL


def count(table: DeltaTable, path: Path, target_file_bytes: int) -> TableCounts:
    """What the version that is read holds."""
    columns = table.get_add_actions(flatten=True)
    sizes = columns.column("size_bytes").to_pylist()
    has_rows = "num_records" in columns.column_names
    rows = columns.column("num_records").to_pylist() if has_rows else [None] * len(sizes)
    return TableCounts(
        table.version(),
        len(sizes),
        sum(sizes),
        None if None in rows else sum(rows),
        sum(is_small(size, target_file_bytes) for size in sizes),
        committed_at(path, table.version()),
    )


class TableCounter:
    """Counts a table anew when it has another version. For one thread."""

    def __init__(self, lake: LakeTable, target_file_bytes: int) -> None:
        self._lake = lake
        self._target_file_bytes = target_file_bytes
        self._last: TableCounts | None = None
        self._next_at = 0.0

    def last(self) -> TableCounts | None:
        """As last counted, which is done now where it is time and no other thread uses the table; None of one that is
        not there yet, or cannot be read."""
        began = time.monotonic()
        if began < self._next_at:
            return self._last
        try:
            with self._lake.idle() as table:
                if table is None:
                    return self._last
                if self._last is None or self._last.version != table.version():
                    self._last = count(table, self._lake.path, self._target_file_bytes)
        except StorageUnusable:  # the next batch reports it
            self._last = None
        now = time.monotonic()
        self._next_at = now + max(COUNT_SECONDS, (now - began) / COUNT_SHARE)
        return self._last
