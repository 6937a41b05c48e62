"""A scrape of 100,000 series: rendered from templates against prometheus_client, and over HTTP while collections run.

    python -m benchmarks.scrape [--series 100000] [--scrapes 200]

Prints two JSON lines: `scrape_render` (the same samples by `prometheus_client.generate_latest` in the same process, in
turns; at least 20 x faster) and `scrape_p99` (a client in another process, a new page for each scrape because the
collector, which is the real one over made-up answers, takes a new picture each second; p99 below 50 ms).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import psutil
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks._collected import SERIES_PER_PARTITION, collector_over
from kctl.exporter import METRICS, Exposition, SnapshotCollector
from kctl.exporter.text import TextRenderer
from kctl.http import HttpServer, Source, bind, create_app
from kctl.master.collector import Collector
from kctl.master.snapshot import FleetSnapshot

TARGET_RATIO = 20.0
TARGET_P99_MS = 50.0
TURNS = 7

_CLIENT = """
import http.client, json, sys, threading
from time import perf_counter
host, count, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
connection, took, size = http.client.HTTPConnection(host), [], 0
for number in range(count + 3):
    threading.Event().wait(pause)
    started = perf_counter()
    connection.request("GET", "/metrics")
    size = len(connection.getresponse().read())
    if number >= 3:
        took.append(perf_counter() - started)
print(json.dumps({"took": took, "bytes": size}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a scrape")
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--scrapes", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(options.series // SERIES_PER_PARTITION + 1, options.scrapes, Path(folder)))


async def _measure(partitions: int, scrapes: int, folder: Path) -> None:
    sys.setswitchinterval(0.001)  # this and the next as in a master
    gc.set_threshold(100_000, 20, 100)
    expositions: list[Exposition] = []

    def prepare() -> None:
        for each in expositions:
            each.prepare()

    collector, feed = collector_over(partitions, folder, prepare)
    collecting = asyncio.create_task(collector.run())
    await feed.wait_beyond(2)
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    latest = collector.latest()
    assert latest is not None
    _measure_render(latest)
    expositions.append(Exposition(collector.latest))
    source = Source(latest=collector.latest, render_metrics=expositions[0].render, feed=feed)
    server = HttpServer(create_app(source), bind("127.0.0.1", 0))
    tasks = [asyncio.create_task(collector.run()), asyncio.create_task(server.serve())]
    try:
        await _measure_http(server.url, scrapes, collector)
    finally:
        server.stop()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _measure_render(snapshot: FleetSnapshot) -> None:
    registry, renderer = CollectorRegistry(), TextRenderer(METRICS)
    registry.register(SnapshotCollector(lambda: snapshot))
    before = psutil.Process().memory_info().rss
    page = renderer.render(snapshot, is_openmetrics=False)
    series = sum(not line.startswith("#") for line in page.splitlines())
    ours, theirs = [], []
    for _ in range(TURNS):
        started = perf_counter()
        renderer.render(snapshot, is_openmetrics=False).encode()
        ours.append(perf_counter() - started)
        started = perf_counter()
        generate_latest(registry)
        theirs.append(perf_counter() - started)
    ratio = statistics.median(theirs) / statistics.median(ours)
    line = {
        "benchmark": "scrape_render",
        "series": series,
        "ours_ms": round(statistics.median(ours) * 1000, 1),
        "prometheus_client_ms": round(statistics.median(theirs) * 1000, 1),
        "ratio": round(ratio, 1),
        "target": TARGET_RATIO,
        "met": ratio >= TARGET_RATIO,
        "page_mb": round(len(page) / 1e6, 1),
        "rss_before_mb": round(before / 1e6),
        "rss_after_mb": round(psutil.Process().memory_info().rss / 1e6),
    }
    print(json.dumps(line), flush=True)


async def _measure_http(url: str, scrapes: int, collector: Collector) -> None:
    host = url.removeprefix("http://")
    before = collector.latest()
    assert before is not None
    started = perf_counter()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, host, str(scrapes), "0.2", stdout=subprocess.PIPE
    )
    output, _ = await client.communicate()
    told = json.loads(output)
    took = sorted(told["took"])
    p99 = took[min(int(len(took) * 0.99), len(took) - 1)] * 1000
    latest = collector.latest()
    assert latest is not None
    line = {
        "benchmark": "scrape_p99",
        "p50_ms": round(statistics.median(took) * 1000, 1),
        "p99_ms": round(p99, 1),
        "max_ms": round(took[-1] * 1000, 1),
        "target": TARGET_P99_MS,
        "met": p99 < TARGET_P99_MS,
        "page_mb": round(told["bytes"] / 1e6, 1),
        "collections": latest.sequence - before.sequence,
        "seconds": round(perf_counter() - started, 1),
        "collect_seconds": round(latest.collect_seconds, 2),
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
