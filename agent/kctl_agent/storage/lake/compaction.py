"""Compaction: the rows of many small files in few large ones, in commits of its own.

Nothing else changes: older versions keep their files until `vacuum` removes them. A commit of a batch meanwhile is no
conflict; an UPDATE, DELETE, MERGE or another OPTIMIZE of the same files is, and then the compaction has done nothing.

delta-rs does the work, in a table of its own of links to the small files (`_compacted`). In the table itself it would
take a commit of its own for good that another OPTIMIZE got ahead of, and each row would be there twice; it syncs
nothing, and knows no moment between writing files and committing them: a power cut would leave a commit without its
files. What it makes lies in a folder like that of a batch, with a plan, by which `vacuum` leaves it alone.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl_agent.messages import number_of
from kctl_agent.storage.lake.compaction_commit import COMPACTIONS, CompactionBasis, Overtaken
from kctl_agent.storage.lake.counts import is_small
from kctl_agent.storage.lake.files import TableFile
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.log import actions, own_file
from kctl_agent.storage.lake.plans import BATCH, forget, has_plan_on, sweep
from kctl_agent.storage.lake.table_checks import check_features
from kctl_agent.storage.room import readable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from kctl_agent.storage.lake.table import LakeTable

__all__ = ["Compacted", "SmallFiles", "compact", "small_files"]

log = logging.getLogger(__name__)

ROUND_BYTES = 1 << 30
ROUND_FILES = 10_000
"""So many are compacted and committed at a time: a conflict or a kill costs no more than that."""
SMALL = "_small"
"""Where the links to small files are, in the folder of a compaction: hidden from every engine, as the log is that
delta-rs makes beside it."""
AT_ONCE = 8
"""So many links are made at a time: in an object store each is a request."""


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
    made. What another process compacts at that time is not committed any more.

    Raises StorageUnusable, TableRefused: also where another writer has changed the same files meanwhile.
    """
    with lake.state() as state:
        check_features(lake.folder, state)
    _fence(lake)
    with lake.latest() as table:
        rounds = list(_rounds(table, target_file_bytes))
        total = Compacted(0, 0, 0, 0, table.version())
    for files in rounds:
        done = _replaced(lake, files, target_file_bytes)
        if done is not None:
            progress(done.version)
            total = Compacted(
                total.files_removed + done.files_removed,
                total.files_added + done.files_added,
                total.bytes_removed + done.bytes_removed,
                total.bytes_added + done.bytes_added,
                done.version,
            )
    lake.checkpoints.wait()
    return total


def _fence(lake: LakeTable) -> None:
    """See that no earlier compaction is committed any more, and remove what it has left: it was killed, or stands still
    on a machine that has lost the lock."""
    with lake.errors():
        is_left = has_plan_on(lake.folder, COMPACTIONS)
    if is_left:
        with lake.state() as state:
            basis = CompactionBasis.of(state)
        lake.commit(basis.id, lambda _state: None, basis.transactions)
        sweep(lake)


def _replaced(lake: LakeTable, files: Sequence[TableFile], target_file_bytes: int) -> Compacted | None:
    """Compact these files and commit what was made of them; None: nothing was. Raises StorageUnusable, TableRefused."""
    with lake.state() as state:
        basis = CompactionBasis.of(state)
    made = lake.folder.below(f"{BATCH}{uuid.uuid4().hex}")
    basis.plan.write(lake.folder, made.name)
    try:
        with lake.errors():
            removed, added = _compacted(lake, made, files, target_file_bytes)
    except BaseException:
        _discard(lake, made)
        raise
    if not removed:
        _discard(lake, made)
        return None
    try:
        version = lake.replace(removed, added, basis)
    except Overtaken:
        _discard(lake, made)
        raise
    try:
        made.remove([file.name for file in made.files() if file.name.startswith("_")])
    except OSError as error:  # `vacuum` finds it
        log.debug("links in %s were not removed: %s", made, error)
    forget(lake.folder, made.name)
    bytes_removed, bytes_added = (sum(file.size for file in each) for each in (removed, added))
    return Compacted(len(removed), len(added), bytes_removed, bytes_added, version)


def _discard(lake: LakeTable, made: Folder) -> None:
    made.remove_all()
    forget(lake.folder, made.name)


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
        yield TableFile(path, size, dict(zip(partitions, map(_text, values), strict=True)))


def _text(value: object) -> str | None:
    """Of a partition, as the protocol of Delta writes it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compacted(
    lake: LakeTable, made: Folder, files: Sequence[TableFile], target_file_bytes: int
) -> tuple[list[TableFile], list[TableFile]]:
    """Those of the files that others are to take the place of, and these, which are in the folder that is made, and on
    the disk."""
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, create_table_with_add_actions

    with lake.latest() as table:
        schema, columns = table.schema(), table.metadata().partition_columns
    made.make()
    links = {f"{SMALL}/{number}.parquet": file for number, file in enumerate(files)}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        linked = [
            threads.submit(lake.folder.link, own_file(file.path), f"{made.name}/{link}") for link, file in links.items()
        ]
        for each in linked:
            each.result()
    adds = [AddAction(link, each.size, each.partition_values, 0, False, "{}") for link, each in links.items()]
    create_table_with_add_actions(made.uri, schema, adds, partition_by=columns, storage_options=made.options)
    shadow = DeltaTable(made.uri, storage_options=made.options)
    shadow.optimize.compact(target_size=target_file_bytes, max_concurrent_tasks=1)
    done = [action for version in range(1, shadow.version() + 1) for action in actions(made, version)]
    removed = [links[action["remove"]["path"]] for action in done if "remove" in action]
    added = [
        TableFile(
            f"{made.name}/{add['path']}", add["size"], add["partitionValues"], add["modificationTime"], add["stats"]
        )
        for action in done
        if (add := action.get("add")) is not None
    ]
    lake.folder.sync(own_file(file.path) for file in added)
    return removed, added
