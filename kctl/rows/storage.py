"""What waits in the storage of one worker, or in all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from kctl.rows import fields
from kctl_agent.wire import JsonObject

__all__ = ["StorageRow", "StorageStats", "storage_row", "storage_stats"]


@dataclass(frozen=True, slots=True)
class StorageStats:
    """What waits in a storage, or in several: then sums, None where one of them does not know."""

    pending: int | None = None
    delayed: int | None = None
    processing: int | None = None
    dead: int | None = None
    bytes: int | None = None
    limit: int | None = None
    limit_bytes: int | None = None
    dead_limit: int | None = None
    free_bytes: int | None = None
    """Of several storages that of the one with least."""
    full: str | None = None
    """Why workers take no new batch; None while there is room."""


@dataclass(frozen=True, slots=True)
class StorageRow(StorageStats):
    """The storage of one worker."""

    storage: str | None = None
    """Equal for workers that share one. None: the worker has not opened its storage yet."""


S = TypeVar("S", bound=StorageStats)


def storage_row(result: JsonObject) -> StorageRow:
    return replace(_counted(StorageRow, result), storage=fields.text(result, "storage"))


def storage_stats(result: JsonObject) -> StorageStats:
    return _counted(StorageStats, result)


def _counted(kind: type[S], result: JsonObject) -> S:
    return kind(
        pending=fields.whole(result, "pending"),
        delayed=fields.whole(result, "delayed"),
        processing=fields.whole(result, "processing"),
        dead=fields.whole(result, "dead"),
        bytes=fields.whole(result, "bytes"),
        limit=fields.whole(result, "limit"),
        limit_bytes=fields.whole(result, "limit_bytes"),
        dead_limit=fields.whole(result, "dead_limit"),
        free_bytes=fields.whole(result, "free_bytes"),
        full=fields.text(result, "full"),
    )
