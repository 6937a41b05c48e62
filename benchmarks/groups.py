"""A cycle of `kctl exporter` over every group of a cluster: processor time, memory, requests, and a scrape.

    python -m benchmarks.groups [--cycles 5] [--sizes S M L]

The collector, the reader and the pages are the real ones, in this process; the broker is `_canned_broker`, in another,
whose answers are made once, so that its time is not ours. Sizes are partitions of topics / partitions of groups.
Prints a JSON line for each size, `groups_cycle`: medians of cycles in which every group has committed once more since
the one before (`moving`) and of those in which nothing has changed (`still`), each with the page rendered and gzipped.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import NamedTuple

import psutil

from benchmarks._canned_broker import canned_broker
from kctl.config.sections import Exporter, Status
from kctl.exporter import Exposition
from kctl.groups.collector import ClusterCollector
from kctl.groups.snapshot import Clusters
from kctl.kafka.access import plain
from kctl.start.interpreter import tune_interpreter

GZIPPED = ("", "gzip")


class Size(NamedTuple):
    partitions: int
    """Of a topic."""
    topics: int
    groups: int
    per_group: int
    """Topics that a group reads."""
    target_ms: float | None = None


SIZES = {
    "S": Size(20, 10, 20, 3),
    "M": Size(20, 100, 200, 10, 40),
    "L": Size(100, 100, 100, 10, 120),
    "many-groups": Size(1, 1000, 65_000, 1),
    "wide": Size(100, 100, 500, 10),
}
TARGET_SCRAPE_MS = 10.0
TARGET_RSS_MIB = 60.0


def measured(size: Size, cycles: int) -> dict[str, object]:
    with canned_broker(*size[:4]) as (address, commit):
        collector = ClusterCollector.of("main", plain(address), Exporter(timeout_seconds=60.0), Status())
        exposition = Exposition(lambda: Clusters(tuple(filter(None, [collector.latest()]))))
        exposition.render(*GZIPPED)
        before = psutil.Process().memory_info().rss
        collector.collect()
        exposition.render(*GZIPPED)
        results: dict[str, object] = {}
        for name, prepare in (("moving", commit), ("still", lambda: None)):
            results[name] = _cycles(collector, exposition, prepare, cycles)
        results["rss_mib"] = round((psutil.Process().memory_info().rss - before) / 2**20, 1)
        started = perf_counter()
        body, _, _ = exposition.render(*GZIPPED)
        results["scrape_ms"] = round((perf_counter() - started) * 1000, 2)
        results["page_bytes"] = len(exposition.render()[0])
        results["gzipped_bytes"] = len(body)
        latest = collector.latest()
        assert latest is not None
        assert latest.is_ready, latest.errors
        assert not latest.errors
        results["group_partitions"] = sum(len(group.partitions) for group in latest.groups)
        results["requests"] = dict(collector._reader.asked)  # type: ignore[attr-defined]
        collector._reader.close()
        collector._thread.shutdown()
    return results


def _cycles(
    collector: ClusterCollector, exposition: Exposition, prepare: Callable[[], None], cycles: int
) -> dict[str, float]:
    cpu, collected, wall = [], [], []
    for _ in range(cycles):
        prepare()
        gc.collect()
        began, started = process_time(), perf_counter()
        collector.collect()
        middle = process_time()
        exposition.render(*GZIPPED)
        cpu.append(process_time() - began)
        collected.append(middle - began)
        wall.append(perf_counter() - started)
    found = {"cpu_ms": cpu, "collect_cpu_ms": collected, "wall_ms": wall}
    return {name: round(statistics.median(values) * 1000, 1) for name, values in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=["S", "M", "L"], choices=list(SIZES))
    options = parser.parse_args()
    tune_interpreter()
    is_met = True
    for name in options.sizes:
        size = SIZES[name]
        result = measured(size, options.cycles)
        still = result["still"]
        assert isinstance(still, dict)
        is_met = is_met and (size.target_ms is None or still["cpu_ms"] <= size.target_ms)
        line = {"benchmark": "groups_cycle", "size": name, **result, "target_cpu_ms": size.target_ms}
        print(json.dumps({**line, "load": os.getloadavg()[0]}), flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
