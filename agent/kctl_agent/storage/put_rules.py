"""Rules of all storages: which writes are allowed at a stored offset, and how a chunk is cut into blocks. Pure."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import (
    Advance,
    Binding,
    Chunk,
    GapRefused,
    OtherGroup,
    StoredOffset,
    StoredOffsetMissing,
    StoredOffsetMoved,
    TopicPartition,
)


def skipped(chunk: Chunk, stored: StoredOffset) -> int:
    return int(np.searchsorted(chunk.columns.offsets, stored.next))


def judged(planned: Chunk | Advance, stored: StoredOffset | None) -> StoredOffset:
    """Returns `stored` if `planned` may still be applied. Raises GapRefused, StoredOffsetMissing, StoredOffsetMoved."""
    where = f"{planned.topic}-{planned.partition}"
    if stored is None:
        raise StoredOffsetMissing(f"{where} has no stored offset in the storage; nothing was written")
    if stored.version != planned.version:
        raise StoredOffsetMoved(
            f"the stored offset of {where} was set again since this batch was planned (version {stored.version}, "
            f"planned on {planned.version}); nothing was written"
        )
    if planned.start > stored.next:
        raise GapRefused(
            f"a range of {where} starts at {planned.start}, above the stored offset {stored.next}: offsets "
            f"{stored.next} to {planned.start - 1} would be lost; nothing was written"
        )
    return stored


def judged_at_start(planned: Advance, stored: StoredOffset | None) -> StoredOffset:
    """Like `judged`, for a write that must not be made twice: also raises StoredOffsetMoved if the stored offset is
    already past `planned.start`."""
    now = judged(planned, stored)
    refuse_moved(planned.tp, now, replace(now, next=planned.start))
    return now


def next_version(stored: StoredOffset, seen: StoredOffset | None) -> StoredOffset:
    return replace(stored, version=seen.version + 1 if seen else 1)


def refuse_moved(tp: TopicPartition, current: StoredOffset | None, seen: StoredOffset | None) -> None:
    if current != seen:
        topic, partition = tp
        raise StoredOffsetMoved(
            f"the stored offset of {topic}-{partition} has moved from {_shown(seen)} to {_shown(current)} since it was "
            "read; nothing was written"
        )


def refuse_other(identity: str, owner: Binding, before: Binding | None, take_over: bool) -> None:
    if before is None or not owner.differs_from(before) or take_over:
        return
    advice = (
        "if the topics were copied there, stop the fleet and run `kctl storage migrate`; otherwise name another "
        "storage, or set storage.on_other_storage to take_over to start again"
        if owner.group == before.group
        else "give each group its own storage (storage.path, storage.namespace), or, if the group was renamed, "
        "set storage.on_other_storage to take_over"
    )
    raise OtherGroup(f"the storage {identity} belongs to {before}, and this is {owner}: {advice}")


def _shown(stored: StoredOffset | None) -> str:
    return f"offset {stored.next} (version {stored.version})" if stored else "none"


def cut(chunk: Chunk, skip: int, block_messages: int, block_bytes: int | None, codec: str) -> Iterator[Block]:
    columns = next(chunk.columns.cut((skip, len(chunk.columns)))) if skip else chunk.columns
    for part in columns.split(block_messages, block_bytes):
        yield Block.of(chunk.topic, chunk.topic_id, chunk.partition, part, codec)
