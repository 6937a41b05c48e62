"""`onBlockSize`: messages and bytes in the storages; a storage that several workers share is counted once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl_agent.replies.block_size import StorageReply


def reduce(answers: Sequence[Answer[StorageReply]], _brokers: BrokerSnapshot) -> StorageReply:
    """Sums storages. A worker that has not opened its storage yet replies without an identity and counts for
    nothing."""
    counts = [(answer.sender, _aged(answer), answer.age_seconds) for answer in answers]
    rows: list[Answer[tuple[StorageReply, ...]]] = [
        Answer(sender, (row,), max(age, _age(row))) for sender, row, age in counts
    ]
    known = [row for storage, row in newest_rows(rows, lambda row: row.storage).items() if storage is not None]
    return StorageReply(
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
        full=_texts(row.full for row in known),
        error=_texts(row.error for row in known),
        age_seconds=max((row.age_seconds for row in known if row.age_seconds is not None), default=None),
    )


def _aged(answer: Answer[StorageReply]) -> StorageReply:
    row = answer.result
    if not answer.kept_seconds or row.age_seconds is None:
        return row
    return replace(row, age_seconds=row.age_seconds + answer.kept_seconds)


def _age(row: StorageReply) -> float:
    """Returns the age of a count. Of several that count one storage the one counts that has done so last."""
    if row.age_seconds is None:
        return inf if row.error else 0.0
    return row.age_seconds


def _texts(texts: Iterable[str | None]) -> str | None:
    return "; ".join(sorted({text for text in texts if text})) or None


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
