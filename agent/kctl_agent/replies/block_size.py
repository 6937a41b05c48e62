"""`block_size`: how much waits in the storage of a worker, or in all of them."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.encode import age, optional

__all__ = ["StorageReply", "TableReply"]


@dataclass(frozen=True, slots=True)
class TableReply:
    """A table that batches become rows of, as it was last counted."""

    version: int | None = None
    rows: int | None = None
    files: int | None = None
    small_files: int | None = None
    """Below half of what compaction aims at."""
    last_commit_seconds: float | None = age()
    """Since anybody's last commit."""


@dataclass(frozen=True, slots=True)
class StorageReply:
    """Messages by state, and bytes. Of several storages sums, None where one of them does not know."""

    storage: str | None = optional()
    """Equal for workers that share one; None of several."""
    pending: int | None = None
    delayed: int | None = None
    """Of the pending ones, how many wait for their next try."""
    processing: int | None = None
    dead: int | None = None
    bytes: int | None = None
    limit: int | None = None
    limit_bytes: int | None = None
    dead_limit: int | None = None
    free_bytes: int | None = None
    """What is left where the storage lies: on its disk, or of the Redis' `maxmemory`; of several, of the one with
    least."""
    full: str | None = None
    """Why workers take no new batch, in one sentence; None while there is room."""
    error: str | None = None
    """Why it could not be counted since; None when it could."""
    age_seconds: float | None = age()
    """Since it was last counted with success; None: not yet."""
    table: TableReply | None = optional()
    """Of mode `lake` only."""
