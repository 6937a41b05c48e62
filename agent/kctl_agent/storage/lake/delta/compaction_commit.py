"""The version that a compaction started from, and whether its commit may still follow. delta-rs accepts two compactions
of the same files, which would duplicate each row, so kctl writes the commit itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import Schema

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.log import actions, committed_at
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import Folder

COMPACTIONS = "kctl/compactions"


class Overtaken(StorageUnusable, code="compaction_overtaken"):
    """Another writer changed the files, columns or table of a compaction; the rest was not compacted."""


@dataclass(slots=True)
class CompactionBasis:
    """The table before its files were listed, and the files removed since."""

    version: int
    committed_at: float | None
    metadata: Mapping[str, Any]
    number: int | None
    removed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, table: Folder, state: LogState) -> CompactionBasis:
        number = state.transaction_version(COMPACTIONS)
        return cls(state.version, committed_at(table, state.version), state.metadata, number)

    @property
    def columns(self) -> pa.Schema:
        every = pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())
        return pa.schema([each for each in every if each.name not in self.metadata["partitionColumns"]])

    @property
    def transactions(self) -> dict[str, int]:
        return {COMPACTIONS: (self.number or 0) + 1}

    def check(self, table: Folder, state: LogState, names: Collection[str]) -> None:
        """Checks that the commit may replace these files. Raises Overtaken, LogUnreadable."""
        if any(state.metadata[key] != self.metadata[key] for key in ("id", "schemaString", "partitionColumns")):
            raise Overtaken(f"the columns of the table {table} were changed meanwhile, or it was replaced by another")
        if committed_at(table, self.version) != self.committed_at:
            raise Overtaken(f"the table {table} went back: nothing was compacted")
        if state.transaction_version(COMPACTIONS) != self.number:
            raise Overtaken(f"another process has compacted the table {table}: the rest was not compacted")
        for version in range(self.version + 1, state.version + 1):
            # Writers escape paths differently.
            self.removed |= {unquote(each["remove"]["path"]) for each in actions(table, version) if "remove" in each}
            self.version, self.committed_at = version, committed_at(table, version)
        if not self.removed.isdisjoint(names):
            raise Overtaken(f"another writer has changed the same files of {table}: nothing was compacted")
