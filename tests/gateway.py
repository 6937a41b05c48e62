"""A host's way out of its network namespace: `python -m tests.gateway FOLDER NAME PORT=HOST …`.

TCP to its own 127.0.0.1:PORT comes out at 127.0.0.1:PORT of HOST, through Unix sockets in FOLDER, which namespaces do
not separate. While FOLDER/NAME.cut names a host, the gateway sends nothing to that host.
"""

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from functools import partial
from pathlib import Path

_POLL_SECONDS = 0.05


class Gateway:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    async def run(self, routes: dict[int, str]) -> None:
        await asyncio.start_unix_server(self.inward, self.folder / f"{self.name}.gate")
        for port, host in routes.items():
            await asyncio.start_server(partial(self.outward, port, host), "127.0.0.1", port)
        print("ready", flush=True)
        await asyncio.Event().wait()

    async def inward(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            port = int(await reader.readline())
            there, here = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(self.pump(reader, here, ""), self.pump(there, writer, ""))
        writer.close()

    async def outward(self, port: int, host: str, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            await self.until_open(host)
            there, here = await asyncio.open_unix_connection(self.folder / f"{host}.gate")
            here.write(b"%d\n" % port)
            await asyncio.gather(self.pump(reader, here, host), self.pump(there, writer, host))
        writer.close()

    async def pump(self, reader: StreamReader, writer: StreamWriter, host: str) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.until_open(host)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def until_open(self, host: str) -> None:
        cut = self.folder / f"{self.name}.cut"
        while host and cut.exists() and host in cut.read_text().split():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    pairs = (route.split("=") for route in sys.argv[3:])
    asyncio.run(Gateway(Path(sys.argv[1]), sys.argv[2]).run({int(port): host for port, host in pairs}))
