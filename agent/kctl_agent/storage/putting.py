"""What all storages share: what may be written on which mark, how a chunk is cut into blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kctl_agent.storage.base import (
    Advance,
    Binding,
    Chunk,
    GapRefused,
    Mark,
    MarkMissing,
    MarkMoved,
    OtherGroup,
    TopicPartition,
)
from kctl_agent.storage.block import Block, encode

__all__ = ["cut", "judged", "placed", "refuse_moved", "refuse_other", "skipped"]


def skipped(chunk: Chunk, mark: Mark) -> int:
    """How many messages of the chunk lie below the mark."""
    return int(np.searchsorted(chunk.columns.offsets, mark.next))


def judged(planned: Chunk | Advance, mark: Mark | None) -> Mark:
    """The mark, if what was planned on it may still be done.

    Raises:
        GapRefused, MarkMissing, MarkMoved: it may not.
    """
    where = f"{planned.topic}-{planned.partition}"
    if mark is None:
        raise MarkMissing(f"{where} has no mark in the storage; nothing was written")
    if mark.version != planned.version:
        raise MarkMoved(
            f"the mark of {where} was placed anew since this batch was planned (version {mark.version}, planned on "
            f"{planned.version}); nothing was written"
        )
    if planned.start > mark.next:
        raise GapRefused(
            f"a range of {where} begins at {planned.start}, above the mark {mark.next}: offsets {mark.next} to "
            f"{planned.start - 1} would be lost; nothing was written"
        )
    return mark


def placed(mark: Mark, seen: Mark | None) -> Mark:
    """The mark as it is written in the place of the one that was seen."""
    return replace(mark, version=seen.version + 1 if seen else 1)


def refuse_moved(tp: TopicPartition, current: Mark | None, seen: Mark | None) -> None:
    """Raises MarkMoved when the mark is not the one that was seen."""
    if current != seen:
        topic, partition = tp
        raise MarkMoved(
            f"the mark of {topic}-{partition} has moved from {_shown(seen)} to {_shown(current)} since it was read; "
            "nothing was written"
        )


def refuse_other(identity: str, owner: Binding, before: Binding | None, take_over: bool) -> None:
    """Raises OtherGroup when a storage that belongs to somebody else is not to be taken over."""
    if before is not None and owner.differs_from(before) and not take_over:
        raise OtherGroup(
            f"the storage {identity} belongs to {before}, and this is {owner}: give each group a storage of its own "
            "(storage.path, storage.namespace), or, if the group was renamed, set storage.on_other_storage to take_over"
        )


def _shown(mark: Mark | None) -> str:
    return f"offset {mark.next} (version {mark.version})" if mark else "none"


def cut(chunk: Chunk, skip: int, block_messages: int, block_bytes: int | None, codec: str) -> Iterator[Block]:
    """The chunk without its first `skip` messages as blocks of so many messages and bytes at the most."""
    columns = chunk.columns.slice(skip, len(chunk.columns)) if skip else chunk.columns
    for part in columns.split(block_messages, block_bytes):
        yield Block(
            chunk.topic,
            chunk.topic_id,
            chunk.partition,
            int(part.offsets[0]),
            int(part.offsets[-1]),
            len(part),
            encode(part, codec),
        )
