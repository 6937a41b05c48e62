"""Removal of files that no version of a table needs any more: replaced longer ago than the retention, or never
committed and as old."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kctl_agent.storage.lake import plans
from kctl_agent.storage.lake.files import is_hidden
from kctl_agent.storage.lake.log import LOG

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["RETENTION_HOURS", "Unused", "remove", "unused"]

RETENTION_HOURS = 168
"""Delta's own default of `delta.deletedFileRetentionDuration`."""

COMMIT_SECONDS = 86_400.0
"""No entry of the log is written for so long: its process was killed. Nor does a file of delta-rs or another engine,
which has no plan, wait longer for its commit, whatever the retention is."""


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
    plan nor, after the plans were read, a place in the table, belongs to none. An UPDATE or DELETE, which delta-rs
    writes the files of, has no plan: these are known by their age alone.
    """
    plans.sweep(lake)
    listed, unknown = lake.read(lambda table: _listed(table, hours))
    listed |= unknown
    killed = time.time() - COMMIT_SECONDS
    oldest = time.time() - 3600 * (RETENTION_HOURS if hours is None else hours)
    with lake.errors():
        sizes = {}
        for file in lake.folder.files():
            sizes[file.name] = file.size
            if _is_hidden(file.name) and file.modified < oldest:
                listed.add(file.name)
            if _is_of_commit(file.name) and file.modified < killed:
                listed.add(file.name)
            if file.name in unknown and not file.name.startswith(plans.BATCH) and file.modified >= killed:
                listed.discard(file.name)
        in_flight = plans.planned(lake.folder)
    with lake.latest() as table:
        needed = {unquote(path) for path in table.get_add_actions().column("path").to_pylist()}
    left = sorted(each for each in listed - needed if each.split("/")[0] not in in_flight)
    return [Unused(each, sizes[each]) for each in left if each in sizes]


def _listed(table: DeltaTable, hours: int | None) -> tuple[set[str], set[str]]:
    """Files that the log knows, and such of a table that it does not."""
    known = set(table.vacuum(hours, dry_run=True, enforce_retention_duration=False))
    found = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    return known, {path for path in found if _is_of_a_table(path)} - known


def remove(lake: LakeTable, files: Iterable[Unused]) -> int:
    """Remove these, and folders of theirs that become empty; how many files were there. Raises StorageUnusable."""
    with lake.errors():
        return lake.folder.remove(file.path for file in files)


def _is_of_a_table(path: str) -> bool:
    """Whether a file lies where batches, or a compaction and other engines, write those of a table."""
    *folders, name = path.split("/")
    is_of_batch = bool(folders) and folders[0].startswith(plans.BATCH)
    return is_of_batch or (name.endswith(".parquet") and all("=" in folder for folder in folders))


def _is_hidden(path: str) -> bool:
    """Whether tasks of Spark have left it in a batch's folder, where no engine looks for files of the table."""
    return path.startswith(plans.BATCH) and any(map(is_hidden, path.split("/")))


def _is_of_commit(path: str) -> bool:
    """Whether kctl or delta-rs has left it, an entry of the log that never was one."""
    return path.startswith(f"{LOG}/_commit_") and path.endswith(".json.tmp")
