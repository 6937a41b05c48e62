"""Compaction: the rows of many small files in few large ones, in commits of its own.

Nothing else changes: older versions keep their files until `vacuum` removes them. A commit of a batch meanwhile is no
conflict; an UPDATE, DELETE, MERGE or another OPTIMIZE of the same files is, and then the compaction has done nothing.

delta-rs does the work. In a folder of this machine it is given a table of its own that nobody sees (`_shadow`): it
syncs nothing, and knows no moment between writing files and committing them. A power cut would leave a commit without
its files, of rows that are stored. In an object store what was written stays, so there it compacts the table itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kctl_agent.messages import number_of
from kctl_agent.storage.lake.counts import is_small
from kctl_agent.storage.lake.files import TableFile
from kctl_agent.storage.lake.folder import FOLDER, Folder
from kctl_agent.storage.lake.log import actions, own_file
from kctl_agent.storage.lake.plans import BATCH
from kctl_agent.storage.room import readable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["Compacted", "SmallFiles", "compact", "small_files"]

ROUND_BYTES = 1 << 30
ROUND_FILES = 10_000
"""So many are compacted and committed at a time: a conflict or a kill costs no more than that."""
SHADOW = "compaction-"
"""How the folder of a table of links begins, in the folder of plans."""


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
    """Compact the small files of the newest version, one task at a time; `progress` is called with each version that is
    made. The caller holds the `upkeep_lock`.

    Raises StorageUnusable, TableRefused: also where another writer has changed the same files meanwhile.
    """
    if lake.folder.local is None:
        return _in_place(lake, target_file_bytes, progress)
    path = lake.folder.local
    for left in (path / FOLDER).glob(f"{SHADOW}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with lake.latest() as table:
        rounds = list(_rounds(table, target_file_bytes))
        total = Compacted(0, 0, 0, 0, table.version())
    for files in rounds:
        with lake.errors():
            removed, added = _compacted(lake, path, files, target_file_bytes)
        if removed:
            total = Compacted(
                total.files_removed + len(removed),
                total.files_added + len(added),
                total.bytes_removed + sum(file.size for file in removed),
                total.bytes_added + sum(file.size for file in added),
                lake.replace(removed, added),
            )
            progress(total.version)
    return total


def _in_place(lake: LakeTable, target_file_bytes: int, progress: Callable[[int], None]) -> Compacted:
    with lake.latest() as table:
        before, version = _sizes(table), table.version()
        has_small = any(_rounds(table, target_file_bytes))
    if not has_small:
        return Compacted(0, 0, 0, 0, version)
    lake.optimize(target_file_bytes)
    with lake.latest() as table:
        after, version = _sizes(table), table.version()
    progress(version)
    removed, added = before.keys() - after.keys(), after.keys() - before.keys()
    added = {path for path in added if not path.startswith(BATCH)}  # batches have been committed meanwhile
    return Compacted(
        len(removed), len(added), sum(before[each] for each in removed), sum(after[each] for each in added), version
    )


def _sizes(table: DeltaTable) -> dict[str, int]:
    return {file.path: file.size for file in _files(table)}


def _rounds(table: DeltaTable, target_file_bytes: int) -> Iterator[list[TableFile]]:
    """What is compacted and committed at a time: small files of partitions that have several."""
    by_partition: dict[tuple[str | None, ...], list[TableFile]] = {}
    for file in _files(table):
        if is_small(file.size, target_file_bytes):
            by_partition.setdefault(tuple(file.partition_values.values()), []).append(file)
    chosen: list[TableFile] = []
    for files in by_partition.values():
        for file in files if len(files) > 1 else []:
            chosen.append(file)
            if sum(each.size for each in chosen) >= ROUND_BYTES or len(chosen) >= ROUND_FILES:
                yield chosen
                chosen = []
    if chosen:
        yield chosen


def _files(table: DeltaTable) -> Iterator[TableFile]:
    columns = table.get_add_actions(flatten=True)
    partitions = table.metadata().partition_columns
    names = ("path", "size_bytes", *(f"partition.{name}" for name in partitions))
    for path, size, *values in zip(*(columns.column(name).to_pylist() for name in names), strict=True):
        yield TableFile(own_file(path), size, dict(zip(partitions, map(_text, values), strict=True)))


def _text(value: object) -> str | None:
    """Of a partition, as the protocol of Delta writes it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compacted(
    lake: LakeTable, path: Path, files: Sequence[TableFile], target_file_bytes: int
) -> tuple[list[TableFile], list[TableFile]]:
    """Those of the files that others are to take the place of, and these, which are on the disk in their place."""
    with _shadow(lake, path, files) as (shadow, links):
        shadow.optimize.compact(target_size=target_file_bytes, max_concurrent_tasks=1)
        folder = lake.folder.below(FOLDER).below(Path(shadow.table_uri).name)
        done = [action for version in range(1, shadow.version() + 1) for action in actions(folder, version)]
        removed = [links[action["remove"]["path"]] for action in done if "remove" in action]
        made = f"{BATCH}{uuid.uuid4().hex}"
        added = [_moved(path, folder, made, action["add"]) for action in done if "add" in action]
        lake.folder.sync(file.path for file in added)
    return removed, added


@contextmanager
def _shadow(
    lake: LakeTable, path: Path, files: Sequence[TableFile]
) -> Iterator[tuple[DeltaTable, dict[str, TableFile]]]:
    """A table of links to these files, for the time of the block, and what each link is of."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, create_table_with_add_actions

    parent = path / FOLDER
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=SHADOW, dir=parent))
    try:
        links = {f"{number}.parquet": file for number, file in enumerate(files)}
        for name, file in links.items():
            os.link(path / file.path, folder / name)
        adds = [AddAction(name, each.size, each.partition_values, 0, False, "{}") for name, each in links.items()]
        with lake.latest() as table:
            schema, columns = table.schema(), table.metadata().partition_columns
        create_table_with_add_actions(str(folder), schema, adds, partition_by=columns)
        yield DeltaTable(folder), links
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moved(table: Path, folder: Folder, made: str, action: Mapping[str, Any]) -> TableFile:
    """A new file in its place in the table."""
    path = f"{made}/{unquote(action['path'])}"
    place = table / path
    place.parent.mkdir(parents=True, exist_ok=True)
    os.rename(Path(folder.uri, unquote(action["path"])), place)
    return TableFile(path, action["size"], action["partitionValues"], action["modificationTime"], action["stats"])
