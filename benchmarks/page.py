"""Pages that are open: what they cost the master, what one costs its browser, and how soon it is there.

    python -m benchmarks.page [--partitions 1000] [--pages 10] [--hosts 1] [--seconds 20] [--no-browser]

The server and the real collector over made-up answers run here; ten clients in a process of their own ask what the page
asks, as often as it does. Of a fleet of several hosts the others run in processes of their own, each with its part of
the partitions. Prints JSON lines. `page_master`: processor time of this process as a share of a core without and with
the pages, in turns, and their difference; the same of each other host. `page_browser`, by Chromium's own counts of a
page whose 500 rows change with each snapshot: milliseconds of its main thread a second, the first byte, and when the
first rows are there. Targets: 1 % of a core for all pages together, first byte 5 ms, usable in 1 s.
"""

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
from time import monotonic, perf_counter, process_time
from typing import Any

import psutil

from benchmarks._collected import GROUP, collector_over, served, service_over
from kctl.hosts.hosts import Hosts
from kctl.hosts.membership import Seen
from kctl.hosts.peers import Peers, PeersAccess
from kctl.hosts.roster import Host, Roster
from kctl.http.server import HttpServer
from kctl.master.history import FleetHistory
from kctl.start.signals import tune_process
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
ASKED_OF_HOSTS = {"hosts": 5.0}
"""What a page of a fleet asks, and the seconds between; the browser part checks that it asks nothing else."""


def main() -> None:
    parser = argparse.ArgumentParser(description="what open pages cost")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--hosts", type=int, default=1, help="of the fleet; the pages are open on one")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--other", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    asyncio.run(_measure(given) if given.other is None else _other(given))


async def _measure(given: argparse.Namespace) -> None:
    tune_process()
    with tempfile.TemporaryDirectory() as folder:
        async with _others(given) as others, _served(given, Path(folder), others) as server:
            await _master(given, server, others)
            if not given.no_browser:
                line = await asyncio.to_thread(_browser, server.url, given.seconds)
                print(json.dumps({"benchmark": "page_browser", "partitions": given.partitions, **line}), flush=True)


class _Other:
    """Another host, in a process of its own."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self._number, self._process = number, process
        self._process_time = psutil.Process(process.pid).cpu_times

    async def host(self) -> Host:
        assert self._process.stdout is not None
        return Host(f"host-{self._number}", (await self._process.stdout.readline()).decode().strip(), 1)

    def used(self) -> float:
        """Seconds of a processor."""
        times = self._process_time()
        return float(times.user + times.system)

    async def end(self) -> None:
        await self._process.communicate(b"")


@asynccontextmanager
async def _others(given: argparse.Namespace) -> AsyncIterator[list[_Other]]:
    words = [sys.executable, "-m", "benchmarks.page", "--partitions", str(given.partitions)]
    words += ["--hosts", str(given.hosts)]
    others = []
    for number in range(1, given.hosts):
        process = await asyncio.create_subprocess_exec(
            *words, "--other", str(number), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        others.append(_Other(number, process))
    try:
        yield others
    finally:
        for each in others:
            await each.end()


async def _other(given: argparse.Namespace) -> None:
    """Serves as a host until its input ends."""
    tune_process()
    with tempfile.TemporaryDirectory() as folder:
        async with _served(given, Path(folder), []) as server:
            print(server.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)


class _Member:
    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    @property
    def seen(self) -> Seen:
        return Seen(self._roster, monotonic())


@asynccontextmanager
async def _served(given: argparse.Namespace, folder: Path, others: list[_Other]) -> AsyncIterator[HttpServer]:
    number, each = given.other or 0, given.partitions // given.hosts
    collector, feed = collector_over(given.partitions if number == 0 else each, folder)
    history = FleetHistory()
    collector.prepare.append(history.add)
    parts: dict[str, Any] = {"history": history}
    if given.hosts > 1:
        me = Host(f"host-{number}", "http://127.0.0.1:1", 1)
        member: Any = _Member(Roster(me.name, 1, (me, *[await other.host() for other in others])))
        hosts = Hosts(member, Peers(PeersAccess(allow_plain=True)), me, ("default", GROUP))
        service = service_over(collector, feed, each, number * each, hosts)
        asked = {"ask": service.ask, "answer": service.answer, "for_other_host": service.for_other_host}
        parts |= {"hosts": hosts, **asked}
    async with served(collector, feed, **parts) as server:
        yield server


async def _master(given: argparse.Namespace, server: HttpServer, others: list[_Other]) -> None:
    alone, beside, reported = [], [], {}
    for _ in range(TURNS):
        alone.append(await _percent(given.seconds, others))
        host, port = server.url.removeprefix("http://").split(":")
        script = _CLIENTS.replace("REST", str(REST_SECONDS), 1)
        clients = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                script,
                host,
                port,
                str(given.pages),
                json.dumps(ASKED | (ASKED_OF_HOSTS if others else {})),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        await _percent(2.0, others)  # they connect
        beside.append(await _percent(given.seconds, others))
        output, _ = await clients.communicate(b"")
        reported = json.loads(output)
    cost, of_others = (
        statistics.median(with_[of] - without[of] for with_, without in zip(beside, alone, strict=True))
        for of in range(2)
    )
    line = {
        "benchmark": "page_master",
        "partitions": given.partitions,
        "pages": given.pages,
        "hosts": given.hosts,
        "percent_without": round(statistics.median(each for each, _ in alone), 2),
        "percent_with": round(statistics.median(each for each, _ in beside), 2),
        "percent_of_pages": round(cost, 2),
        "percent_of_each_other_host": round(of_others, 2),
        **{name: round(value / (given.seconds + 2), 1) for name, value in reported.items()},
        "target": PERCENT,
        "met": cost < PERCENT and not reported["failed"],
    }
    print(json.dumps(line), flush=True)


async def _percent(seconds: float, others: list[_Other]) -> tuple[float, float]:
    """Processor time of this process in the next so many seconds, in percent of a core; and of each other host."""
    began, used, used_there = perf_counter(), process_time(), sum(each.used() for each in others)
    await asyncio.sleep(seconds)
    took, there = perf_counter() - began, sum(each.used() for each in others) - used_there
    return 100 * (process_time() - used) / took, 100 * there / took / max(len(others), 1)


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
    unknown = asked - set(ASKED | ASKED_OF_HOSTS) - {"events?recent=50"}
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
