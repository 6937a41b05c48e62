"""Requests as bytes, over a socket of their own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(url: str, source: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection(*url.rpartition("/")[2].split(":"), local_addr=(source, 0))


async def closed(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ending(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes."""
    async with asyncio.timeout(5):
        with suppress(ConnectionError):
            return await reader.read()
    return b""


async def answer_to(url: str, data: bytes) -> bytes:
    reader, writer = await connected(url)
    writer.write(data)
    answer = await ending(reader)
    await closed(writer)
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
