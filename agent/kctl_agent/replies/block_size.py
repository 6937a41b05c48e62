"""`block_size`: messages and bytes in the storage of a worker, or in all storages of a fleet."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.fields import age, optional, value


@dataclass(frozen=True, slots=True)
class TableReply:
    """The Delta table of a storage with mode `lake`."""

    version: int | None = value(
        "kctl_table_version",
        "The newest version of the table of mode `lake`. After a new version, kctl measures the table again, at most "
        "every ten seconds.",
    )
    rows: int | None = value(
        "kctl_table_rows", "Rows of the table. Absent if the table's log does not have the row count of every file."
    )
    files: int | None = value("kctl_table_files", "Files of the newest version.")
    small_files: int | None = value(
        "kctl_table_small_files",
        "Files of the newest version that are smaller than half of `storage.target_file_bytes`.",
    )
    last_commit_seconds: float | None = age(
        "kctl_table_last_commit_age_seconds", "The time since the last commit of any writer to the table."
    )


RECENT_DEAD_SECONDS = 300.0

RECENT_DEAD_COUNTED = 20_000  # a file or Redis storage counts at most this many recent dead letters


@dataclass(frozen=True, slots=True)
class RecentDeadLetters:
    """Dead letters of the last five minutes."""

    count: int = 0
    error_class: str | None = None
    """The most frequent error class or kind of failure, never the error's text. In a file or Redis, kctl looks only
    at the newest 20."""
    first_seconds: float | None = age()
    """How long ago the first of them became a dead letter."""
    last_seconds: float | None = age()
    """How long ago the last of them became a dead letter."""


@dataclass(frozen=True, slots=True)
class StorageReply:
    """A storage's messages by state, and its size. For several storages, `free_bytes` is the lowest value, and
    `oldest_seconds` and `age_seconds` are the highest. Other numbers are sums, or None if one is unknown."""

    storage: str | None = optional()
    """Identity of the storage, equal for workers that share it; None for several."""
    pending: int | None = value(
        "kctl_storage_messages",
        "Messages in the storage by state: `pending`, `processing` (a sinker has leased them), `dead` (dead letters). "
        "A storage that workers share is counted once.",
        ("state", "pending"),
    )
    """Pending messages. `processing`: messages that a sinker has leased. `dead`: dead letters. A storage that workers
    share is counted once."""
    delayed: int | None = value(
        "kctl_storage_delayed_messages", "Pending messages that failed and wait for their next try."
    )
    processing: int | None = value("kctl_storage_messages", "", ("state", "processing"))
    dead: int | None = value("kctl_storage_messages", "", ("state", "dead"))
    bytes: int | None = value(
        "kctl_storage_bytes", "The size of the storage's content. With mode `lake`, the table's size."
    )
    limit: int | None = value(
        "kctl_storage_limit_messages",
        "At this many `pending` and `processing` messages, workers take no new batch. Absent without a limit.",
        is_limit=True,
    )
    limit_bytes: int | None = value(
        "kctl_storage_limit_bytes",
        "At this many bytes in the storage, workers take no new batch. Absent without a limit.",
        is_limit=True,
    )
    dead_limit: int | None = value(
        "kctl_storage_dead_limit_messages",
        "At this many dead letters, workers take no new batch. Absent without a limit.",
        is_limit=True,
    )
    free_bytes: int | None = value(
        "kctl_storage_free_bytes",
        "Free space on the storage's disk, or in a Redis up to its `maxmemory`. Absent for a Redis without "
        "`maxmemory`.",
    )
    oldest_seconds: float | None = age(
        "kctl_storage_oldest_message_seconds",
        "How long the oldest unhandled message has been in the storage. Dead letters do not count. Absent without "
        "unhandled messages.",
    )
    full: str | None = None
    """Why workers take no new batch, in one sentence; None while there is room."""
    error: str | None = None
    """Why the last count failed; None if it succeeded."""
    age_seconds: float | None = age()
    """Age of the last successful count; None before the first."""
    table: TableReply | None = optional()
    """The table, with mode `lake` only."""
    recent_dead: RecentDeadLetters | None = optional()
    """Dead letters of the last five minutes, counted when `dead` changes and every 30 s; absent if there were none."""
