"""Mode `lake`: messages become rows of a Delta table, and unreadable messages become rows of a second table."""

from dataclasses import replace
from functools import cached_property

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.table_storage import TableStorage
from kctl_agent.storage.limits import TableStats


class LakeStorage(TableStorage):
    @cached_property
    def _dead_letters(self) -> TableStorage:
        return self.dead_letter_table()

    def stats(self) -> TableStats:
        counts = self._dead_letters.counter.last()
        dead = 0 if self._dead_letters.counter.is_absent else None if counts is None else counts.rows
        return replace(super().stats(), dead=dead)

    def dead_letter_store(self) -> DeadLetterTable | None:
        return DeadLetterTable(self, self.owner.group) if self.is_bound else None

    def tables(self) -> list[TableStorage]:
        return [self, self._dead_letters] if self._dead_letters.table.exists() else [self]
