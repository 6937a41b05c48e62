"""Removal of files that no version of a table needs any more: replaced longer ago than the retention, or never
committed and as old."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kctl_agent.storage.lake import plans

if TYPE_CHECKING:
    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["RETENTION_HOURS", "Unused", "remove", "unused"]

RETENTION_HOURS = 168
"""Delta's own default of `delta.deletedFileRetentionDuration`."""


@dataclass(frozen=True, slots=True)
class Unused:
    """A file, relative to the table's folder, and its size."""

    path: str
    size: int


def unused(lake: LakeTable, hours: int | None = None) -> list[Unused]:
    """What may be removed: what neither the newest version nor one that was newest in the last `hours` has (None: as
    the table is configured, by default 7 days), and what is of no batch in flight. Raises StorageUnusable.

    delta-rs lists it, by the log and by the age of files that the log does not know; of these only such are taken as a
    writer of this table leaves, and nothing that somebody has put beside them. A batch in flight, perhaps of a
    process that is frozen for longer, has a plan from before its first file to after its commit; so what has neither a
    plan nor, after the plans were read, a place in the table, belongs to none.
    """
    plans.sweep(lake)
    with lake.latest() as table:
        listed = set(table.vacuum(hours, dry_run=True, enforce_retention_duration=False))
        unknown = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        listed.update(path for path in unknown if _is_of_a_table(path))
    oldest = time.time() - 3600 * (RETENTION_HOURS if hours is None else hours)
    listed |= set(_hidden(lake.path, oldest))
    in_flight = {path.stem for path in (lake.path / plans.FOLDER).glob("*.json")}
    with lake.latest() as table:
        needed = {unquote(path) for path in table.get_add_actions().column("path").to_pylist()}
    return list(_sized(lake.path, sorted(each for each in listed - needed if each.split("/")[0] not in in_flight)))


def remove(lake: LakeTable, files: Iterable[Unused]) -> int:
    """Remove these, and folders of theirs that become empty; how many files were there. Raises OSError."""
    count = 0
    folders: set[Path] = set()
    for file in files:
        path = lake.path / file.path
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        count += 1
        folders |= {folder for folder in path.parents if lake.path in folder.parents}
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        try:
            folder.rmdir()
        except OSError:  # not empty
            continue
    return count


def _is_of_a_table(path: str) -> bool:
    """Whether a file lies where batches, or a compaction and other engines, write those of a table."""
    *folders, name = path.split("/")
    is_of_batch = bool(folders) and folders[0].startswith(plans.BATCH)
    return is_of_batch or (name.endswith(".parquet") and all("=" in folder for folder in folders))


def _hidden(path: Path, oldest: float) -> Iterator[str]:
    """What tasks of Spark have left in a batch's folder, where no engine looks for files of the table."""
    for folder in path.glob(f"{plans.BATCH}*"):
        for parent, _, names in os.walk(folder):
            for name in names:
                file = Path(parent, name)
                relative = file.relative_to(path)
                if any(part.startswith(("_", ".")) for part in relative.parts) and file.stat().st_mtime < oldest:
                    yield str(relative)


def _sized(path: Path, files: Iterable[str]) -> Iterator[Unused]:
    for file in files:
        try:
            yield Unused(file, (path / file).stat().st_size)
        except FileNotFoundError:  # a batch has ended meanwhile
            continue
