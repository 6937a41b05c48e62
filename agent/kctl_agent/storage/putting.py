"""What a put does in every storage: judge a chunk by the mark, cut it into blocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kctl_agent.storage.base import Chunk, GapRefused, MarkMissing, TopicRecreated
from kctl_agent.storage.block import Block, encode

__all__ = ["cut", "skipped"]


def skipped(chunk: Chunk, mark: tuple[int, str | None] | None) -> int:
    """How many messages of the chunk lie below the mark, given as (next offset, topic id). Raises what `put` raises."""
    where = f"{chunk.topic}-{chunk.partition}"
    if mark is None:
        raise MarkMissing(f"{where} has no mark in the storage; nothing was written")
    following, topic_id = mark
    if topic_id != chunk.topic_id:
        raise TopicRecreated(f"{where} was made again while it was read; nothing was written")
    if chunk.start > following:
        raise GapRefused(
            f"a range of {where} begins at {chunk.start}, above the mark {following}: offsets {following} to "
            f"{chunk.start - 1} would be lost; nothing was written"
        )
    return int(np.searchsorted(chunk.columns.offsets, following))


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
