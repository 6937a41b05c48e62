"""What the commit of a compaction was decided on, and whether that still holds of the version that it is written upon.

delta-rs and Delta's own for Spark check a commit against those that came first. Of two compactions of the same files
delta-rs takes both, and each row is there twice: so a compaction of kctl's is written by kctl.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.log import actions
from kctl_agent.storage.lake.plans import Plan

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder import Folder
    from kctl_agent.storage.lake.log_state import LogState

__all__ = ["COMPACTIONS", "CompactionBasis", "Overtaken", "is_touched"]

COMPACTIONS = "kctl/compactions"
"""The `txn` action that each compaction of kctl's moves on: what an earlier one has left is known by it."""


class Overtaken(StorageUnusable):
    """Another writer came first, and nothing was committed."""

    code = "compaction_overtaken"


@dataclass(frozen=True, slots=True)
class CompactionBasis:
    """The table as it was before the first file was read."""

    version: int
    id: str
    schema: str
    partition_by: tuple[str, ...]
    number: int | None
    """Of COMPACTIONS."""

    @classmethod
    def of(cls, state: LogState) -> CompactionBasis:
        return cls(
            state.version,
            state.id,
            str(state.metadata["schemaString"]),
            tuple(state.partition_columns),
            state.transaction_version(COMPACTIONS),
        )

    @property
    def plan(self) -> Plan:
        return Plan(self.version, {COMPACTIONS: (self.number, None)})

    @property
    def transactions(self) -> dict[str, int]:
        return {COMPACTIONS: (self.number or 0) + 1}

    def check(self, table: Folder, state: LogState) -> None:
        """Raises Overtaken."""
        found = CompactionBasis.of(state)
        if found.version < self.version or found.id != self.id:
            raise Overtaken(f"the table {table} went back, or was replaced: nothing was compacted")
        if (found.schema, found.partition_by) != (self.schema, self.partition_by):
            raise Overtaken(f"the columns of the table {table} were changed meanwhile: nothing was compacted")
        if found.number != self.number:
            raise Overtaken(f"another process has compacted the table {table}: the rest was not compacted")


def is_touched(table: Folder, version: int, names: Collection[str]) -> bool:
    """Whether the commit of this version has removed or rewritten one of these files. Each writer has escapes of its
    own in a path. Raises LogUnreadable, OSError."""
    changed = (action.get("remove") or action.get("add") for action in actions(table, version))
    return any(unquote(each["path"]) in names for each in changed if each is not None)
