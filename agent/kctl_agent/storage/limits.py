"""The counts of a storage, and whether it has room for another batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

FREE_INODES = 0.01  # this share must stay free if free disk space is limited


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """Limits at which workers take no new batch. None means no limit."""

    messages: int | None = None  # does not include dead letters
    bytes: int | None = None  # includes dead letters
    dead: int | None = None
    min_free_bytes: int | None = None
    dead_seconds: float | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> StorageLimits:
        names = ("limit", "limit_bytes", "dead_limit", "min_free_bytes", "dead_expire_seconds")
        return cls(*(settings.get(name) or None for name in names))


@dataclass(frozen=True, slots=True)
class Free:
    where: str  # the place in a sentence, for example "the disk of /var/lib/kctl"
    bytes: int
    minimum: int | None
    inodes: float | None = None  # the free share; None: the file system has no limit

    @classmethod
    def on_disk(cls, folder: object, disk: Any, minimum: int | None = None) -> Self:
        inodes = disk.f_favail / disk.f_files if disk.f_files else None
        return cls(f"the disk of {folder}", disk.f_bavail * disk.f_frsize, minimum, inodes)


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Counts of one partition's messages by state. `bytes` includes dead letters."""

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
        return self.pending + self.processing + self.delayed

    def plus(self, state: str, messages: int, size: int, age: float | None = None) -> PartitionStats:
        ages = [each for each in (self.oldest_seconds, age) if each is not None]
        more: dict[str, Any] = {state: getattr(self, state) + messages, "bytes": self.bytes + size}
        return replace(self, **more, oldest_seconds=max(ages, default=None))


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Counts of messages by state. `pending` can be claimed now, `processing` are leased, and `delayed` wait for a
    retry. A block whose lease or delay has expired keeps its state until a sinker next claims messages."""

    pending: int
    processing: int
    dead: int
    bytes: int
    limits: StorageLimits
    delayed: int = 0
    oldest_seconds: float | None = None  # age of the oldest message that is not dead
    partitions: tuple[PartitionStats, ...] = ()
    free: Free | None = None

    @property
    def unfinished(self) -> int:
        return self.pending + self.processing + self.delayed

    @classmethod
    def of(
        cls, partitions: tuple[PartitionStats, ...], limits: StorageLimits, free: Free | None = None
    ) -> StorageStats:
        ages = [p.oldest_seconds for p in partitions if p.oldest_seconds is not None]
        names = ("pending", "processing", "delayed", "dead", "bytes")
        sums = {name: sum(getattr(each, name) for each in partitions) for name in names}
        return cls(**sums, limits=limits, oldest_seconds=max(ages, default=None), partitions=partitions, free=free)


@dataclass(frozen=True, slots=True)
class TableCounts:
    version: int
    files: int
    bytes: int
    rows: int | None  # None if the log lacks the count of a file
    small_files: int  # files smaller than half of the compaction target
    committed_at: float | None  # the last commit by any writer, in Unix seconds


@dataclass(frozen=True, slots=True)
class TableStats:
    """A table's limits and counts. `counts` is None before the first count."""

    limits: StorageLimits
    free: Free | None
    counts: TableCounts | None = None
    dead: int | None = None
    commits_failed: int = 0
    """Commits of this process. `commits_retried`: those that it repeated because of another writer's commit."""
    commits_retried: int = 0


def why_full(stats: StorageStats | TableStats, share: float = 1.0) -> str | None:
    """Returns why there is no room for a batch, or None if there is room. `share` lowers the limits. A worker that
    waits for room passes less than 1, so that it does not start and stop repeatedly."""
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
        return f"{free.where} has {readable(free.bytes)} left, but {readable(free.minimum)} should stay free"
    if free is not None and free.minimum is not None and free.inodes is not None and free.inodes * share < FREE_INODES:
        return f"{free.where} has {free.inodes:.1%} of its inodes left, but {FREE_INODES:.0%} should stay free"
    return None


def _why_queue_full(stats: StorageStats, share: float) -> str | None:
    limits = stats.limits
    messages = stats.unfinished
    if limits.messages is not None and messages >= limits.messages * share:
        return f"the storage holds {messages:,} messages, and storage.limit is {limits.messages:,}"
    if limits.bytes is not None and stats.bytes >= limits.bytes * share:
        dead = f" ({stats.dead:,} dead letters among them)" if stats.dead else ""
        return f"the storage holds {readable(stats.bytes)}{dead}, and storage.limit_bytes is {readable(limits.bytes)}"
    return None


def readable(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
