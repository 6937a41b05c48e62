"""The API under 500 requests a second while the collector takes a snapshot each second.

    python -m benchmarks.api [--rate 500] [--seconds 20] [--partitions 64]

The server and the real collector over made-up answers share one processor; the client, in a process of its own, sends
at fixed times whatever came back, over eight connections, `/api/v1/lag` and `/api/v1/status` in turns. Prints one JSON
line, `api_p99`: below 20 ms, counted from when a request should have been sent.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._collected import collector_over, served
from kctl.master.history import FleetHistory
from kctl.start.signals import tune_process

TARGET_P99_MS = 20.0

_CLIENT = """
import asyncio, json, sys
from time import perf_counter
host, port, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
CONNECTIONS = 8
took, failed = [], 0

async def one(number, started):
    global failed
    reader, writer = await asyncio.open_connection(host, port)
    for n in range(int(rate * seconds / CONNECTIONS)):
        due = started + (n * CONNECTIONS + number) / rate
        await asyncio.sleep(max(due - perf_counter(), 0))
        path = ("/api/v1/lag", "/api/v1/status")[n % 2]
        writer.write(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
        await reader.readexactly(length)
        failed += not head.startswith(b"HTTP/1.1 200")
        took.append(perf_counter() - due)
    writer.close()

async def main():
    started = perf_counter() + 0.1
    await asyncio.gather(*(one(number, started) for number in range(CONNECTIONS)))
    took.sort()
    at = lambda share: round(took[int(len(took) * share)] * 1000, 2)
    print(json.dumps({"requests": len(took), "failed": failed, "seconds": round(perf_counter() - started, 1),
                      "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": round(took[-1] * 1000, 1)}))

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="the API under load")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--partitions", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(options.rate, options.seconds, options.partitions, Path(folder)))


async def _measure(rate: float, seconds: float, partitions: int, folder: Path) -> None:
    tune_process()
    processors = os.sched_getaffinity(0)
    collector, feed = collector_over(partitions, folder)
    history = FleetHistory()
    collector.prepare.append(history.add)
    async with served(collector, feed, history=history) as server:
        host, port = server.url.removeprefix("http://").split(":")
        try:
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _CLIENT, host, port, str(rate), str(seconds), stdout=subprocess.PIPE
            )
            os.sched_setaffinity(0, {max(processors)})
            output, _ = await client.communicate()
        finally:
            os.sched_setaffinity(0, processors)
    reported = json.loads(output)
    line = {
        "benchmark": "api_p99",
        **reported,
        "partitions": partitions,
        "target": TARGET_P99_MS,
        "met": reported["p99_ms"] < TARGET_P99_MS and reported["failed"] == 0,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
