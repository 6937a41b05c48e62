"""Stores chunks in Redis. One transaction sends the bytes of many chunks and runs the script that stores them."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kctl_agent.storage.base import Writer
from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import Chunk, Put
from kctl_agent.storage.put_rules import cut, judged, skipped
from kctl_agent.storage.redis.client import RedisSession
from kctl_agent.storage.redis.codec import name_of, stored_offset_of

SENT_SECONDS = 600
"""Bytes expire after this time if no script has decided on them: Redis forgot the script, then the sender died."""
PORTION_BYTES = 2 << 20
"""Above about 4 MB a transaction, Redis needs twice the kernel time for each byte of its append-only file, because its
buffers are freed and allocated again (benchmarks/README.md)."""


class RedisWriter(Writer):
    def __init__(self, session: RedisSession, block_messages: int, block_bytes: int, codec: str) -> None:
        self._session = session
        self._block_messages = block_messages
        self._block_bytes = block_bytes
        self._codec = codec
        self._density = 1.0

    def portions(self, chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
        most = int(PORTION_BYTES / self._density)
        portion: list[Chunk] = []
        room = most
        for part in (part for chunk in chunks for part in self._parts(chunk, most)):
            size = part.columns.bytes
            if portion and (size > room or part.tp == portion[-1].tp):
                yield portion
                portion, room = [], most
            portion.append(part)
            room -= size
        if portion:
            yield portion

    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        puts = self._put(chunks)
        if sum(put.skipped for put in puts) == 0:
            sent, given = sum(put.bytes for put in puts), sum(chunk.columns.bytes for chunk in chunks)
            self._density = min(sent / max(given, 1), 1.0)
        return puts

    def close(self) -> None: ...

    def _parts(self, chunk: Chunk, most: int) -> Iterator[Chunk]:
        columns, begin = chunk.columns, chunk.start
        rows = len(columns) * most // max(columns.bytes, 1)
        size = max(rows // self._block_messages, 1) * self._block_messages
        for part in columns.split(size, 2 * most):
            end = int(part.offsets[-1]) + 1
            is_last = end > int(columns.offsets[-1])
            yield replace(chunk, start=begin, end=chunk.end if is_last else end, columns=part)
            begin = end

    def _put(self, chunks: Sequence[Chunk]) -> list[Put]:
        cut_at = [(0, "")] * len(chunks)
        while True:
            blocks = [
                list(cut(chunk, skip, self._block_messages, self._block_bytes, self._codec))
                for chunk, (skip, _) in zip(chunks, cut_at, strict=True)
            ]
            found = self._send(chunks, blocks, [at for _, at in cut_at])
            if not found:
                return [
                    Put(len(chunk.columns) - skip, skip, sum(len(block.body) for block in of_chunk))
                    for chunk, (skip, _), of_chunk in zip(chunks, cut_at, blocks, strict=True)
                ]
            stored = [
                judged(chunk, stored_offset_of(chunk.tp, each)) for chunk, each in zip(chunks, found, strict=True)
            ]
            cut_at = [(skipped(chunk, each), str(each.next)) for chunk, each in zip(chunks, stored, strict=True)]

    def _send(self, chunks: Sequence[Chunk], blocks: Sequence[Sequence[Block]], cut_at: Sequence[str]) -> Any:
        session, token = self._session, uuid.uuid4().hex
        sent: dict[str, bytes] = {}
        words: list[object] = []
        for chunk, of_chunk, at in zip(chunks, blocks, cut_at, strict=True):
            words += (name_of(chunk.tp), chunk.topic_id or "", chunk.start, chunk.end, chunk.version, at, len(of_chunk))
            for block in of_chunk:
                name = f"{token}:{len(sent)}"
                # Not as an argument: the copies into Lua and back double the cost of a put (benchmarks/README.md).
                sent[session.key("sent", name)] = block.body
                words += (block.first, block.last, block.count, name)
        return session.run_with(sent, SENT_SECONDS, "put", token, *words)
