"""Pages that are open: what they cost the master, what one costs its browser, and how soon it is there.

    python -m benchmarks.page [--partitions 1000] [--pages 10] [--seconds 20] [--no-browser]

The server and the real collector over made-up answers run here; ten clients in a process of their own ask what the page
asks, as often as it does. Prints JSON lines. `page_master`: processor time of this process as a share of a core without
and with the pages, in turns, and their difference. `page_browser`, by Chromium's own counts of a page whose 500 rows
change with each snapshot: milliseconds of its main thread a second, the first byte, and when the first rows are there.
Targets: 1 % of a core for all pages together, first byte 5 ms, usable in 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks._collected import collector_over, served
from kctl.http.server import HttpServer
from kctl.master.history import FleetHistory
from kctl.start.signals import tune_interpreter
from tests.browser import browser

PERCENT, FIRST_BYTE_MS, USABLE_MS = 1.0, 5.0, 1000.0
TURNS = 3
OPENS = 5
_USABLE = """
new MutationObserver((_, self) => {
  if (!document.querySelector('#partitions tbody tr')) return;
  window.usableAt = performance.now();
  self.disconnect();
}).observe(document, {childList: true, subtree: true});
"""
_CLIENTS = """
import asyncio, json, sys
from time import monotonic
host, port, pages, asked = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
counts = {"requests": 0, "bytes": 0}

async def get(reader, writer, path):
    writer.write(f"GET /api/v1/{path} HTTP/1.1\\r\\nHost: localhost\\r\\nAccept: application/json\\r\\n\\r\\n".encode())
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    size = int(head.lower().split(b"content-length: ")[1].split(b"\\r\\n")[0])
    await reader.readexactly(size)
    counts["requests"] += 1
    counts["bytes"] += size

async def page():
    connection = await asyncio.open_connection(host, port, limit=2**24)
    stream, out = await asyncio.open_connection(host, port)
    out.write(b"GET /api/v1/events?recent=50 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    due = {path: 0.0 for path in asked}
    rests_until = 0.0
    while line := await stream.readline():
        now = monotonic()
        if not line.startswith(b"event: collected") or now < rests_until:
            continue
        for path, seconds in asked.items():
            if now >= due[path]:
                due[path] = now + seconds
                await get(*connection, path)
        rests_until = monotonic() + REST

async def main():
    everything = [asyncio.create_task(page()) for _ in range(pages)]
    await asyncio.to_thread(sys.stdin.read)
    failed = [each.exception() for each in everything if each.done()]
    print(json.dumps({**counts, "failed": len(failed)}), flush=True)
    for each in everything: each.cancel()

asyncio.run(main())
"""
REST_SECONDS = 0.5
ASKED = {
    "status": 1.9,
    "lag?limit=2000": 1.9,
    "workers?limit=1000": 1.9,
    "history?seconds=900": 5.0,
    "lag?limit=2000&history=1": 15.0,
}
"""What a page of a fleet asks, and the seconds between; the browser part checks that it asks nothing else."""


def main() -> None:
    parser = argparse.ArgumentParser(description="what open pages cost")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--no-browser", action="store_true")
    given = parser.parse_args()
    asyncio.run(_measure(given))


async def _measure(given: argparse.Namespace) -> None:
    tune_interpreter()
    with tempfile.TemporaryDirectory() as folder:
        async with _served(given.partitions, Path(folder)) as server:
            await _master(given, server)
            if not given.no_browser:
                line = await asyncio.to_thread(_browser, server.url, given.seconds)
                print(json.dumps({"benchmark": "page_browser", "partitions": given.partitions, **line}), flush=True)


@asynccontextmanager
async def _served(partitions: int, folder: Path) -> AsyncIterator[HttpServer]:
    collector, feed = collector_over(partitions, folder)
    history = FleetHistory()
    collector.prepare.append(history.add)
    async with served(collector, feed, history=history) as server:
        yield server


async def _master(given: argparse.Namespace, server: HttpServer) -> None:
    alone, beside, reported = [], [], {}
    for _ in range(TURNS):
        alone.append(await _percent(given.seconds))
        host, port = server.url.removeprefix("http://").split(":")
        script = _CLIENTS.replace("REST", str(REST_SECONDS), 1)
        clients = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, host, port, str(given.pages), json.dumps(ASKED)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        await _percent(2.0)  # they connect
        beside.append(await _percent(given.seconds))
        output, _ = await clients.communicate(b"")
        reported = json.loads(output)
    cost = statistics.median(with_ - without for with_, without in zip(beside, alone, strict=True))
    line = {
        "benchmark": "page_master",
        "partitions": given.partitions,
        "pages": given.pages,
        "percent_without": round(statistics.median(alone), 2),
        "percent_with": round(statistics.median(beside), 2),
        "percent_of_pages": round(cost, 2),
        **{name: round(value / (given.seconds + 2), 1) for name, value in reported.items()},
        "target": PERCENT,
        "met": cost < PERCENT and not reported["failed"],
    }
    print(json.dumps(line), flush=True)


async def _percent(seconds: float) -> float:
    """Processor time of this process in the next so many seconds, in percent of a core."""
    began, used = perf_counter(), process_time()
    await asyncio.sleep(seconds)
    return 100 * (process_time() - used) / (perf_counter() - began)


def _browser(url: str, seconds: float) -> dict[str, Any]:
    with browser() as chromium:
        chromium.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _USABLE})
        first_bytes, usable = [], []
        for _ in range(OPENS):
            chromium.get("about:blank")
            chromium.get(url)
            usable.append(_eventually(chromium, "return window.usableAt"))
            first_bytes.append(
                chromium.execute_script(
                    "const {responseStart, requestStart} = performance.getEntriesByType('navigation')[0];"
                    "return responseStart - requestStart"
                )
            )
        seen = _busy(chromium, seconds)
        paths = "return performance.getEntriesByType('resource').map(each => each.name)"
        asked = {name.partition("/api/v1/")[2] for name in chromium.execute_script(paths) if "/api/" in name}
    unknown = asked - set(ASKED) - {"events?recent=50"}
    line = {
        "first_byte_ms": round(statistics.median(first_bytes), 1),
        "usable_ms": round(statistics.median(usable)),
        "thread_ms_a_second": seen,
        "asked_besides": sorted(unknown),
    }
    return {**line, "met": line["first_byte_ms"] < FIRST_BYTE_MS and line["usable_ms"] < USABLE_MS and not unknown}


def _eventually(chromium: Any, script: str) -> Any:
    until = perf_counter() + 60
    while (found := chromium.execute_script(script)) is None and perf_counter() < until:
        pass
    return found


def _busy(chromium: Any, seconds: float) -> dict[str, float]:
    """Milliseconds of the page's main thread in a second, by what it does."""
    chromium.execute_cdp_cmd("Performance.enable", {})
    before = _metrics(chromium)
    began = perf_counter()
    chromium.execute_async_script(f"setTimeout(arguments[0], {seconds * 1000})")
    took = perf_counter() - began
    after = _metrics(chromium)
    names = {
        "all": "TaskDuration",
        "script": "ScriptDuration",
        "layout": "LayoutDuration",
        "style": "RecalcStyleDuration",
    }
    return {name: round(1000 * (after[of] - before[of]) / took, 1) for name, of in names.items()}


def _metrics(chromium: Any) -> dict[str, float]:
    return {each["name"]: each["value"] for each in chromium.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}


if __name__ == "__main__":
    main()
