"""Mode `lake`: batches become rows of a Delta table; what a transform could not read, rows of a second one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.table_counts import TableCounter
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.table_storage import TARGET_FILE_BYTES, TableStorage
from kctl_agent.storage.limits import StorageLimits, TableStats

__all__ = ["LakeStorage"]


class LakeStorage(TableStorage):
    """The table of the messages; it also counts and expires their dead letters."""

    def __init__(
        self,
        folder: Folder,
        *,
        partition_by: Sequence[str] = (),
        target_file_bytes: int = TARGET_FILE_BYTES,
        merge_schema: bool = False,
        limits: StorageLimits = StorageLimits(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__(
            folder,
            partition_by=partition_by,
            target_file_bytes=target_file_bytes,
            merge_schema=merge_schema,
            limits=limits,
        )
        self._dead_letters = self.beside()
        self._dead_letter_counter = TableCounter(self._dead_letters.table, target_file_bytes)

    def stats(self) -> TableStats:
        return replace(super().stats(), dead=self._count_dead())

    def _count_dead(self) -> int | None:
        """None where that cannot be counted."""
        counts = self._dead_letter_counter.last()
        if self._dead_letter_counter.is_absent:
            return 0
        return None if counts is None else counts.rows

    def expire_dead(self) -> int:
        return DeadLetterTable(self, self.owner.group).expire() if self.is_bound else 0

    def tables(self) -> list[TableStorage]:
        """Those whose files are looked after: this one, and that of its dead letters where there is one. Raises
        StorageUnusable."""
        return [self, self._dead_letters] if self._dead_letters.table.exists() else [self]
