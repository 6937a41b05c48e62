"""Stores batches in a Delta table, together with the stored offsets.

One commit adds a batch's files and moves the stored offsets of its partitions. Several groups may write to one table.
Spark writes each batch's files into a separate folder (`worker.query.lake_put`). Readers see them after the commit.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from kctl_agent.storage.base import OffsetStore, StorageUnusable
from kctl_agent.storage.chunk import (
    NONE_STORED,
    Advance,
    Binding,
    StoredOffset,
    StoredOffsetMoved,
    StoredOffsets,
    TopicPartition,
)
from kctl_agent.storage.lake.delta.batch_plans import BATCH, BatchPlan, forget
from kctl_agent.storage.lake.delta.files import DataFile, DayRefused, Written, written_files
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.delta.offsets import app_id, claim_id, owner_of, read_offset, transactions
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.delta.table_counts import TableCounter, count
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.limits import StorageLimits, TableCounts, TableStats
from kctl_agent.storage.put_rules import judged, next_version, refuse_moved

Move = tuple[StoredOffset | None, StoredOffset]  # a stored offset before (None: not set) and after
TARGET_FILE_BYTES = 128 << 20
"""As Delta's own auto compaction (`spark.databricks.delta.autoCompact.maxFileSize`)."""


@dataclass(eq=False, repr=False)
class TableStorage(OffsetStore):
    """A Delta table as storage. Pass `merge_schema` to add a batch's new columns to the table."""

    folder: Folder
    _: KW_ONLY
    partition_by: Sequence[str] = ()
    target_file_bytes: int = TARGET_FILE_BYTES
    merge_schema: bool = False
    limits: StorageLimits = StorageLimits()  # noqa: RUF009 - it is frozen

    def __post_init__(self) -> None:
        self.table = LakeTable(self.folder)
        self._owner: Binding | None = None
        self.counter = TableCounter(self.table, self.target_file_bytes)

    @property
    def identity(self) -> str:
        return f"lake:{self.folder}"

    def dead_letter_table(self) -> TableStorage:
        folder = self.folder.sibling(f"{self.folder.name}_dead_letters")
        return TableStorage(folder, target_file_bytes=self.target_file_bytes, limits=self.limits)

    def check_folders(self) -> None:
        """Checks whether a folder on this machine is usable, without writing. Raises StorageUnusable, TableRefused."""
        if self.folder.local is not None:
            self.folder.check()

    def prepare(self) -> None:
        self.table.prepare()

    def fit(self, schema: str) -> None:
        self.table.fit(schema, self.partition_by, merge_schema=self.merge_schema)

    def columns(self) -> Sequence[Mapping[str, Any]] | None:
        """Returns the columns as in Spark's JSON schema, or None if there is no table. Raises StorageUnusable."""
        if not self.table.exists():
            return None
        with self.table.state() as table:
            return list(table.fields)

    def bind(self, owner: Binding, *, take_over: bool = False) -> str:  # noqa: ARG002
        """Sets the owner, and returns the table's id. Accepts any group, because several may write to one table."""
        self._owner = owner.known_from(self._owner)
        with self.table.state() as table:
            return table.id

    def moved_from(self) -> Binding | None:
        owners = {owner for owner, _ in self.group_offsets(self.owner.group)}
        if any(not self.owner.differs_from(each) for each in owners):
            return None
        return min(owners, key=str, default=None)

    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        with self.table.state() as table:
            return self._read(table, partitions)

    def init_offsets(self, stored_offsets: Collection[StoredOffset], seen: StoredOffsets = NONE_STORED) -> None:
        self.commit({each.tp: (seen.get(each.tp), next_version(each, seen.get(each.tp))) for each in stored_offsets})

    def advance_offsets(self, advances: Collection[Advance]) -> None:
        with self.table.state() as table:
            before = self._judged(table, advances)
        after = {each.tp: replace(before[each.tp], next=max(before[each.tp].next, each.end)) for each in advances}
        self.commit({tp: (before[tp], after[tp]) for tp in after if after[tp] != before[tp]})

    def stats(self) -> TableStats:
        """Returns limits, free space and the table's last count. Does not wait for a commit."""
        free, commits = self.folder.free(), (self.table.commits_failed, self.table.commits_retried)
        if free is not None:
            free = replace(free, minimum=self.limits.min_free_bytes)
        return TableStats(self.limits, free, self.counter.last(), 0, *commits)

    def count(self) -> TableCounts:
        with self.table.errors():
            return count(self.folder, self.target_file_bytes)

    def group_offsets(self, group: str) -> list[tuple[Binding, StoredOffset]]:
        with self.table.state() as table:
            found = [owned for name in table.transactions if (owned := owner_of(name)) and owned[0].group == group]
            stored = [(owner, read_offset(table.transactions.get, owner, tp)) for owner, tp in found]
        return sorted(
            ((owner, each) for owner, each in stored if each is not None),
            key=lambda owned: (owned[0].cluster_id or "", owned[1].tp),
        )

    def begin(self, advances: Collection[Advance]) -> LakeBatch:
        """Plans a batch of these offset ranges. Raises GapRefused, StoredOffsetMissing, StoredOffsetMoved."""
        with self.table.state() as table:
            before, id_, version = self._judged(table, advances), table.id, table.version
            claims = {tp: table.transactions.get(claim_id(self.owner, tp)) for tp in before}
        moves: dict[TopicPartition, Move] = {}
        for each in advances:
            stored = before[each.tp]
            moves[each.tp] = stored, replace(stored, next=max(stored.next, each.end))
        return self.plan(id_, version, moves, {tp: stored.next for tp, stored in before.items()}, claims)

    def plan(
        self,
        id_: str,
        version: int,
        moves: Mapping[TopicPartition, Move],
        below: Mapping[TopicPartition, int],
        claims: Mapping[TopicPartition, int | None] = MappingProxyType({}),
    ) -> LakeBatch:
        batch = LakeBatch(self, id_, moves, below, claims)
        numbers: dict[str, int | None] = {}
        for tp, (before, _) in moves.items():
            name = app_id(self.owner, tp)
            numbers[name], numbers[f"{name}/version"] = (before.next, before.version) if before else (None, None)
        BatchPlan(version, numbers).write(self.folder, batch.folder.name)
        return batch

    def commit(
        self,
        moves: Mapping[TopicPartition, Move],
        files: Sequence[DataFile] = (),
        id_: str | None = None,
        claims: Mapping[TopicPartition, int | None] = MappingProxyType({}),
    ) -> None:
        """Moves stored offsets and adds files in one commit. Raises StoredOffsetMoved if the table no longer has the
        old offsets in `moves` or the claim numbers in `claims`."""
        if not moves and not files:
            return
        owner = self.owner
        if id_ is None:
            with self.table.state() as table:
                id_ = table.id
        written: dict[str, int] = {}
        for before, after in moves.values():
            written |= transactions(owner, before, after)
        self.table.commit(id_, partial(self._check, moves, claims), written, files)

    def claim(self, batch: LakeBatch) -> None:
        """Prevents commits of other batches planned earlier for partitions of `batch`. Raises TableRefused. Raises
        StoredOffsetMoved if `batch` can no longer commit, and StorageUnusable if the result is unknown."""
        claims = {tp: secrets.randbits(62) for tp in batch.moves}
        written = {claim_id(self.owner, tp): number for tp, number in claims.items()}
        self.table.commit(batch.table_id, partial(self._check, batch.moves, batch.claims), written)
        batch.claims = claims

    def _check(
        self, moves: Mapping[TopicPartition, Move], claims: Mapping[TopicPartition, int | None], table: LogState
    ) -> None:
        for tp, (before, _) in moves.items():
            refuse_moved(tp, read_offset(table.transactions.get, self.owner, tp), before)
        for tp, claim in claims.items():
            if table.transactions.get(claim_id(self.owner, tp)) != claim:
                raise StoredOffsetMoved(
                    f"another process is about to store dead letters of {tp[0]}-{tp[1]}; nothing was written"
                )

    def _judged(self, table: LogState, advances: Collection[Advance]) -> dict[TopicPartition, StoredOffset]:
        stored = self._read(table, [each.tp for each in advances])
        return {each.tp: judged(each, stored.get(each.tp)) for each in advances}

    def _read(self, table: LogState, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        found = {tp: read_offset(table.transactions.get, self.owner, tp) for tp in partitions}
        return {tp: stored for tp, stored in found.items() if stored is not None}

    @property
    def owner(self) -> Binding:
        if self._owner is None:
            raise StorageUnusable(f"the group whose stored offsets of {self.identity} to use is not known yet")
        return self._owner

    @property
    def is_bound(self) -> bool:
        return self._owner is not None

    @property
    def cluster_id(self) -> str | None:
        return self._owner.cluster_id if self._owner else None


@dataclass(eq=False)
class LakeBatch:
    """A planned batch. Messages below the offsets in `below` are stored already. `claims` has the claim number of each
    partition. The commit fails if another batch has changed one of these numbers."""

    _storage: TableStorage
    table_id: str
    moves: Mapping[TopicPartition, Move]
    below: Mapping[TopicPartition, int]
    claims: Mapping[TopicPartition, int | None]

    def __post_init__(self) -> None:
        self.folder = self._storage.folder.subfolder(f"{BATCH}{uuid.uuid4().hex}")

    def commit(self, written: Written | None = None) -> list[DataFile]:
        """Adds the files, moves the stored offsets, and returns the files. Pass Spark's report as `written` to add only
        files of committed tasks. StoredOffsetMoved (another process was first) and TableRefused mean that the batch
        was not committed. After StorageUnusable, only the stored offsets show whether it was."""
        files = written_files(self._storage.folder, self.folder, written)
        if files is None:
            raise StorageUnusable(f"{self.folder}, with the rows of a batch, is gone: nothing of it was stored")
        try:
            self._storage.commit(self.moves, files, self.table_id, self.claims)
        except DayRefused:
            self.discard()  # each try would leave its files
            raise
        forget(self._storage.folder, self.folder.name)
        return files

    def discard(self) -> None:
        """Removes the files, but keeps the plan. `sweep` needs the plan to find files of abandoned Spark tasks."""
        self.folder.remove_all()
