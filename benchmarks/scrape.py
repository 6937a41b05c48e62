"""A scrape of 100,000 series: rendered, against prometheus_client, and over HTTP while collections run.

    python -m benchmarks.scrape [--series 100000] [--scrapes 200]

Prints three JSON lines. `scrape_render`: the same samples by `prometheus_client.generate_latest` in the same process,
in turns, each of a new snapshot, by processor time; at least 20 x faster. prometheus_client is given its samples ready
made; `with_families` is how it is when it has to make them too, as of a custom collector. `scrape_p99`: as Prometheus
asks (gzip), by a client in another process while the collector, which is the real one over made-up answers, takes one
snapshot after the other; p99 below 50 ms. `scrape_plain_p99`: the same without compression, ten megabytes a scrape.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter, process_time

import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as FamilyCollector

from benchmarks._collected import SERIES_PER_PARTITION, collector_over, served
from benchmarks.snapshot_collector import SnapshotCollector
from kctl.exporter import Exposition
from kctl.master.collector import Collector
from kctl.master.snapshot import FleetSnapshot
from kctl.start.signals import tune_process

TARGET_RATIO = 20.0
TARGET_P99_MS = 50.0
TURNS = 7
AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}

_CLIENT = """
import http.client, json, sys, threading
from time import perf_counter
host, count, pause, headers = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
connection, took, size = http.client.HTTPConnection(host), [], 0
for number in range(count + 3):
    threading.Event().wait(pause)
    started = perf_counter()
    connection.request("GET", "/metrics", headers=headers)
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
    tune_process()
    expositions: list[Exposition] = []

    def prepare(snapshot: FleetSnapshot) -> None:
        for each in expositions:
            each.prepare(snapshot)

    collector, feed = collector_over(partitions, folder, prepare)
    await _measure_render(collector)
    exposition = Exposition(collector.latest)
    expositions.append(exposition)
    async with served(collector, feed, 2, metrics=exposition.page) as server:
        await _measure_http("scrape_p99", server.url, scrapes, collector, AS_PROMETHEUS)
        await _measure_http("scrape_plain_p99", server.url, scrapes, collector, {})


class _Ready(FamilyCollector):
    """Gives families that were made before."""

    def __init__(self) -> None:
        self.families: list[Family] = []

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        return iter(self.families)


async def _measure_render(collector: Collector) -> None:
    snapshots = [await collector.collect() for _ in range(TURNS + 2)]
    snapshot, ready, bare, whole = snapshots[0], _Ready(), CollectorRegistry(), CollectorRegistry()
    exposition = Exposition(lambda: snapshot)
    bare.register(ready)
    samples = SnapshotCollector(lambda: snapshot)
    whole.register(samples)
    before = psutil.Process().memory_info().rss
    exposition.render()
    after = psutil.Process().memory_info().rss
    page = b""
    took: dict[str, list[float]] = {"ours": [], "bare": [], "whole": []}
    for turn in snapshots[1:]:
        snapshot = turn
        ready.families = list(samples.collect())
        for name, render in (
            ("ours", exposition.render),
            ("bare", lambda: generate_latest(bare)),
            ("whole", lambda: generate_latest(whole)),
        ):
            started = process_time()
            rendered = render()
            took[name].append((process_time() - started) * 1000)
            page = rendered[0] if isinstance(rendered, tuple) else page
    ours, theirs, with_families = (statistics.median(each) for each in took.values())
    line = {
        "benchmark": "scrape_render",
        "series": sum(not each.startswith(b"#") for each in page.splitlines()),
        "ours_ms": round(ours, 1),
        "prometheus_client_ms": round(theirs, 1),
        "ratio": round(theirs / ours, 1),
        "with_families": round(with_families / ours, 1),
        "target": TARGET_RATIO,
        "met": theirs / ours >= TARGET_RATIO,
        "page_mb": round(len(page) / 1e6, 1),
        "rss_before_mb": round(before / 1e6),
        "rss_after_mb": round(after / 1e6),
    }
    print(json.dumps(line), flush=True)


async def _measure_http(name: str, url: str, scrapes: int, collector: Collector, headers: Mapping[str, str]) -> None:
    host = url.removeprefix("http://")
    before = collector.latest()
    assert before is not None
    started = perf_counter()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, host, str(scrapes), "0.2", json.dumps(headers), stdout=subprocess.PIPE
    )
    output, _ = await client.communicate()
    reported = json.loads(output)
    took = sorted(reported["took"])
    p99 = took[min(int(len(took) * 0.99), len(took) - 1)] * 1000
    latest = collector.latest()
    assert latest is not None
    line = {
        "benchmark": name,
        "p50_ms": round(statistics.median(took) * 1000, 1),
        "p99_ms": round(p99, 1),
        "max_ms": round(took[-1] * 1000, 1),
        "target": TARGET_P99_MS,
        "met": p99 < TARGET_P99_MS,
        "page_mb": round(reported["bytes"] / 1e6, 1),
        "collections": latest.sequence - before.sequence,
        "seconds": round(perf_counter() - started, 1),
        "collect_seconds": round(latest.collect_seconds, 2),
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
