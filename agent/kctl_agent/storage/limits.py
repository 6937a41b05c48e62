"""The counts of a storage, and whether it has room for another batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

FREE_INODES = 0.01
"""The share of inodes that should stay free, where the room on a disk is limited."""


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """At which workers take no new batch, and how long dead letters are kept; None: no limit."""

    messages: int | None = None
    """That are not dead."""
    bytes: int | None = None
    """As stored, dead letters included."""
    dead: int | None = None
    """Messages that are dead letters."""
    min_free_bytes: int | None = None
    """Of the disk of a file storage."""
    dead_seconds: float | None = None
    """Dead letters that are older are removed for good (`Storage.expire_dead`)."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> StorageLimits:
        """Those of `open_storage`'s settings; what is missing or 0 is no limit."""
        names = ("limit", "limit_bytes", "dead_limit", "min_free_bytes", "dead_expire_seconds")
        return cls(*(settings.get(name) or None for name in names))


@dataclass(frozen=True, slots=True)
class Free:
    """Room where a storage lies: `bytes` of it are free, and `minimum` should stay so (None: no matter)."""

    where: str
    """In a sentence, such as "the disk of /var/lib/kctl"."""
    bytes: int
    minimum: int | None
    inodes: float | None = None
    """The share of inodes that is free; None: there is no limit."""

    @classmethod
    def on_disk(cls, folder: object, disk: Any, minimum: int | None = None) -> Self:
        """Of the file system of this folder, by its `os.statvfs`."""
        inodes = disk.f_favail / disk.f_files if disk.f_files else None
        return cls(f"the disk of {folder}", disk.f_bavail * disk.f_frsize, minimum, inodes)


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Messages of one partition by state, bytes as stored (dead letters too), age of the oldest that is not dead."""

    topic: str
    partition: int
    pending: int = 0
    processing: int = 0
    delayed: int = 0
    dead: int = 0
    bytes: int = 0
    oldest_seconds: float | None = None

    @property
    def unfinished(self) -> int:
        """Messages that are neither handled nor dead letters."""
        return self.pending + self.processing + self.delayed

    def plus(self, state: str, messages: int, size: int, age: float | None = None) -> PartitionStats:
        """With so many messages more in a state, of `size` bytes; `age` of the oldest of them."""
        ages = [each for each in (self.oldest_seconds, age) if each is not None]
        more: dict[str, Any] = {state: getattr(self, state) + messages, "bytes": self.bytes + size}
        return replace(self, **more, oldest_seconds=max(ages, default=None))


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Messages by state, bytes as stored, limits. `pending` may be claimed now; `processing` are leased; `delayed` wait
    for their next try; `dead` are dead letters. What ran out counts as it was until somebody claims."""

    pending: int
    processing: int
    dead: int
    bytes: int
    limits: StorageLimits
    delayed: int = 0
    oldest_seconds: float | None = None
    """For how long the oldest message that is not dead has been in the storage; None when there is none."""
    partitions: tuple[PartitionStats, ...] = ()
    free: Free | None = None
    """What is left where the storage lies; None where that is not known or has no bound."""

    @property
    def limit(self) -> int | None:
        """In messages; None: no limit."""
        return self.limits.messages

    @classmethod
    def of(
        cls, partitions: tuple[PartitionStats, ...], limits: StorageLimits, free: Free | None = None
    ) -> StorageStats:
        """The sums."""
        ages = [p.oldest_seconds for p in partitions if p.oldest_seconds is not None]
        names = ("pending", "processing", "delayed", "dead", "bytes")
        sums = {name: sum(getattr(each, name) for each in partitions) for name in names}
        return cls(**sums, limits=limits, oldest_seconds=max(ages, default=None), partitions=partitions, free=free)


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What a version of a table holds."""

    version: int
    files: int
    bytes: int
    rows: int | None
    """None where the log does not have them of every file."""
    small_files: int
    """Smaller than half of what compaction aims at."""
    committed_at: float | None
    """Unix seconds of the last commit, by anybody."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """A table, in which nothing waits; `counts` is None before the first count."""

    limits: StorageLimits
    free: Free | None
    counts: TableCounts | None = None
    dead: int | None = None
    """Dead letters in the table beside it."""
    commits_failed: int = 0
    """Of this process; and how often others got ahead of one in a way that had it decided anew."""
    commits_retried: int = 0


def why_full(stats: StorageStats | TableStats, share: float = 1.0) -> str | None:
    """Why a storage has no room for another batch, in one sentence; None if it has. With a `share` less than 1 it has
    room only below that part of its limits: for workers that wait, so that they do not start and stop all the time."""
    if not isinstance(stats, TableStats) and (why := _why_queue_full(stats, share)) is not None:
        return why
    dead, limit = stats.dead, stats.limits.dead
    if dead is not None and limit is not None and dead >= limit * share:
        return (
            f"the storage holds {dead:,} dead letters, and storage.dead_limit is {limit:,}: "
            "`kctl storage dead list` shows them, `kctl storage dead requeue` and `dead delete` make room"
        )
    free = stats.free
    if free is not None and free.minimum is not None and free.bytes * share < free.minimum:
        return f"{free.where} has {readable(free.bytes)} left, and {readable(free.minimum)} should stay free"
    if free is not None and free.minimum is not None and free.inodes is not None and free.inodes * share < FREE_INODES:
        return f"{free.where} has {free.inodes:.1%} of its inodes left, and {FREE_INODES:.0%} should stay free"
    return None


def _why_queue_full(stats: StorageStats, share: float) -> str | None:
    limits = stats.limits
    messages = stats.pending + stats.delayed + stats.processing
    if limits.messages is not None and messages >= limits.messages * share:
        return f"the storage holds {messages:,} messages, and storage.limit is {limits.messages:,}"
    if limits.bytes is not None and stats.bytes >= limits.bytes * share:
        dead = f" ({stats.dead:,} dead letters among them)" if stats.dead else ""
        return f"the storage holds {readable(stats.bytes)}{dead}, and storage.limit_bytes is {readable(limits.bytes)}"
    return None


def readable(number: float) -> str:
    """Bytes as people read them: `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
