"""Compaction: the rows of many small files in few large ones, by delta-rs, in commits of its own.

Nothing else changes: older versions keep their files until `vacuum` removes them. A commit of a batch meanwhile is no
conflict; an UPDATE, DELETE, MERGE or another OPTIMIZE of the same files is, and then the compaction has done nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.messages import number_of
from kctl_agent.storage.lake.counts import is_small
from kctl_agent.storage.lake.files import sync
from kctl_agent.storage.lake.log import added, entry_path
from kctl_agent.storage.room import readable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["Compacted", "SmallFiles", "compact", "small_files"]

COMMIT_SECONDS = 60
"""What was compacted by then is committed: a conflict or a kill costs no more than that."""
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """What a compaction would take: files of partitions that have several small ones."""

    files: int
    bytes: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction has replaced by what."""

    files_removed: int
    files_added: int
    bytes_removed: int
    bytes_added: int
    version: int
    """Of the table afterwards."""

    def __str__(self) -> str:
        return (
            f"{number_of(self.files_removed, 'file')} ({readable(self.bytes_removed)}) became "
            f"{number_of(self.files_added, 'file')} ({readable(self.bytes_added)}): version {self.version}"
        )


def small_files(table: DeltaTable, target_file_bytes: int, least: int = 2) -> SmallFiles:
    """Of partitions with so many small files at least."""
    counts: Counter[tuple[object, ...]] = Counter()
    sizes: Counter[tuple[object, ...]] = Counter()
    actions = table.get_add_actions(flatten=True)
    names = [f"partition.{name}" for name in table.metadata().partition_columns]
    columns = [actions.column(name).to_pylist() for name in ("size_bytes", *names)]
    for size, *values in zip(*columns, strict=True):
        if is_small(size, target_file_bytes):
            counts[tuple(values)] += 1
            sizes[tuple(values)] += size
    chosen = [partition for partition, count in counts.items() if count >= least]
    return SmallFiles(sum(counts[each] for each in chosen), sum(sizes[each] for each in chosen), len(chosen))


def compact(
    lake: LakeTable, target_file_bytes: int, progress: Callable[[int], None] = lambda _version: None
) -> Compacted:
    """Compact the files of the newest version, one task at a time; `progress` is called with each version that is made.

    Raises StorageUnusable: also where another writer has changed the same files meanwhile.
    """
    with lake.latest() as table, ThreadPoolExecutor(1, "kctl-compaction") as thread:
        synced = table.version()
        running = thread.submit(
            table.optimize.compact,
            target_size=target_file_bytes,
            max_concurrent_tasks=1,
            min_commit_interval=COMMIT_SECONDS,
        )
        while not wait([running], POLL_SECONDS).done:
            synced = _sync(lake.path, synced, progress)
        _sync(lake.path, synced, progress)
        metrics = running.result()
        return Compacted(
            metrics["numFilesRemoved"],
            metrics["numFilesAdded"],
            _total(metrics["filesRemoved"]),
            _total(metrics["filesAdded"]),
            table.version(),
        )


def _total(sizes: str) -> int:
    """Bytes; delta-rs has these metrics as JSON in JSON, without a total where there is no file."""
    return int(json.loads(sizes).get("totalSize") or 0)


def _sync(path: Path, version: int, progress: Callable[[int], None]) -> int:
    """Whatever was committed after a version is on the disk; the newest version. delta-rs syncs nothing, and knows no
    moment between writing files and committing them; until here a power cut leaves what they replaced."""
    while (entry := entry_path(path, version + 1)).exists():
        version += 1
        for file in added(path, version):
            sync(file)
            sync(file.parent)
        sync(entry)
        progress(version)
    sync(entry.parent)
    return version
