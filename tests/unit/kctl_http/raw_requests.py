import asyncio
from contextlib import suppress

import httpx

from tests.stranger import run_as_nobody

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(url: str, source: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection(*url.rpartition("/")[2].split(":"), local_addr=(source, 0))


async def closed(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ending(reader: asyncio.StreamReader) -> bytes:
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


_READS = """
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as server:
    server.connect((sys.argv[1], int(sys.argv[2])))
    server.sendall(f"GET {sys.argv[3]} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".encode())
    print(server.recv(65536).split()[1].decode())
"""


async def status_for_nobody(url: httpx.URL, path: str) -> str:
    done = await asyncio.to_thread(run_as_nobody, _READS, url.host, str(url.port), path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
