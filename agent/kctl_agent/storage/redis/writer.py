"""Puts into a Redis storage: a transaction per chunk, of the bytes and of the script that judges them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from kctl_agent.storage.base import Chunk, Put, Writer
from kctl_agent.storage.block import Block, Columns
from kctl_agent.storage.put_rules import cut, judged, skipped
from kctl_agent.storage.redis.client import as_unusable, transact
from kctl_agent.storage.redis.codec import name_of, stored_offset_of
from kctl_agent.storage.redis.session import RedisSession

__all__ = ["RedisWriter"]

SENT_SECONDS = 600
"""After which bytes go that no script has judged: Redis forgot the script, and then their sender died."""
PORTION_BYTES = 2 << 20
"""Of one transaction, as they are sent. Above about 4 MB Redis needs twice the time of the kernel for each byte of its
append-only file: the buffers grow so large that they are given back and asked for anew each time
(benchmarks/README.md)."""


class RedisWriter(Writer):
    """Shares the storage's connections."""

    def __init__(self, session: RedisSession, block_messages: int, block_bytes: int, codec: str) -> None:
        self._session = session
        self._block_messages = block_messages
        self._block_bytes = block_bytes
        self._codec = codec
        self._density = 1.0
        """Bytes that were sent for a byte of messages, in the last put."""

    def portions(self, columns: Columns) -> Iterator[Columns]:
        rows = int(len(columns) * PORTION_BYTES / max(columns.bytes * self._density, 1))
        size = max(rows // self._block_messages, 1) * self._block_messages
        # Where messages differ in size, a portion may be twice as large as it should; no more than that.
        yield from columns.split(size, int(2 * PORTION_BYTES / self._density))

    def put(self, chunk: Chunk) -> Put:
        put = self._put(chunk)
        if put.stored == len(chunk.columns):
            self._density = min(put.bytes / max(chunk.columns.bytes, 1), 1.0)
        return put

    def close(self) -> None: ...

    def _put(self, chunk: Chunk) -> Put:
        """Cut once more only if messages of the chunk lie below the stored offset."""
        skip, cut_at = 0, ""
        while True:
            blocks = list(cut(chunk, skip, self._block_messages, self._block_bytes, self._codec))
            place = (name_of(chunk.tp), chunk.topic_id or "", chunk.start, chunk.end, chunk.version, cut_at)
            found = self._send(blocks, place)
            if not found:
                return Put(len(chunk.columns) - skip, skip, sum(len(block.body) for block in blocks))
            stored = judged(chunk, stored_offset_of(chunk.tp, found))
            skip, cut_at = skipped(chunk, stored), str(stored.next)

    def _send(self, blocks: Sequence[Block], place: Sequence[object]) -> Any:
        """The bytes as plain values and the script that judges them, in one transaction. Handed to the script they
        would be copied into Lua and out again, which cost as much as all the rest (benchmarks/README.md)."""
        session, token = self._session, uuid.uuid4().hex
        names = [f"{token}:{number}" for number in range(len(blocks))]
        rows = [word for b, name in zip(blocks, names, strict=True) for word in (b.first, b.last, b.count, name)]
        sent = {session.key("sent", name): block.body for block, name in zip(blocks, names, strict=True)}
        with as_unusable(session.place):
            return transact(session.client, sent, SENT_SECONDS, "put", session.prefix, token, *place, *rows)
