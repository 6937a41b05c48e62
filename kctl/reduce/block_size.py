"""`onBlockSize`: what waits in the storages; one that several workers share is counted once."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl.rows.storage import StorageRow, StorageStats

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer[StorageRow]], _brokers: BrokerSnapshot) -> StorageStats:
    """A worker that has not opened its storage yet replies without an identity and counts for nothing."""
    rows: list[Answer[tuple[StorageRow, ...]]] = [
        Answer(answer.sender, (answer.result,), answer.age_seconds) for answer in answers
    ]
    known = [row for storage, row in newest_rows(rows, lambda row: row.storage).items() if storage is not None]
    return StorageStats(
        pending=_sum([row.pending for row in known]),
        delayed=_sum([row.delayed for row in known]),
        processing=_sum([row.processing for row in known]),
        dead=_sum([row.dead for row in known]),
        bytes=_sum([row.bytes for row in known]),
        limit=_sum([row.limit for row in known]),
        limit_bytes=_sum([row.limit_bytes for row in known]),
        dead_limit=_sum([row.dead_limit for row in known]),
        free_bytes=min((row.free_bytes for row in known if row.free_bytes is not None), default=None),
        table=known[0].table if len(known) == 1 else None,
        full="; ".join(sorted({row.full for row in known if row.full})) or None,
    )


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
