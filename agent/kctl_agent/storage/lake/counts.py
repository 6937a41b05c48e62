"""What a version of a Delta table holds: files, bytes, rows, by the statistics in its log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.storage.lake.log import committed_at
from kctl_agent.storage.room import TableStats

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["count", "is_small"]

SMALL = 0.5
"""Of the size that compaction aims at, as Delta's own auto compaction counts. What fills files is not cut to fit, so
many that are as large as they will ever be are a little below their target."""


def is_small(size: int, target_file_bytes: int) -> bool:
    return size < target_file_bytes * SMALL


def count(table: DeltaTable, path: Path, before: TableStats, target_file_bytes: int) -> TableStats:
    """`before` with what this version holds; `rows` only where the statistics of all files have them."""
    columns = table.get_add_actions(flatten=True)
    sizes = columns.column("size_bytes").to_pylist()
    has_rows = "num_records" in columns.column_names
    rows = columns.column("num_records").to_pylist() if has_rows else [None] * len(sizes)
    version = table.version()
    return replace(
        before,
        version=version,
        files=len(sizes),
        bytes=sum(sizes),
        rows=None if None in rows else sum(rows),
        small_files=sum(is_small(size, target_file_bytes) for size in sizes),
        committed_at=committed_at(path, version),
    )
