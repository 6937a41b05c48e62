"""A cycle of `kctl exporter` over every group of a cluster: processor time, memory, requests, and a scrape.

    python -m benchmarks.groups [--cycles 5] [--sizes S M L]

The collector, the reader and the pages are the real ones, in this process; the broker is `_canned_broker`, in another,
whose answers are made once, so that its time is not ours. Sizes are partitions of topics / partitions of groups.
Prints a JSON line for each size, `groups_cycle`: medians of cycles in which every partition has new messages and new
commits, none or a few of them waiting (`keeping_up`), in which every group has committed once more, far behind
(`moving`), and in which nothing has changed (`still`). Each is with the page rendered and gzipped; `judging_cpu_ms` is
what the status rules take of it, `page_cpu_ms` the page. `loop_held_ms` is how late an event loop was at most while a
thread went through a cycle. Memory is that after all cycles but two: with `--cycles 22` after 67 collections.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any, NamedTuple

import psutil

from benchmarks._canned_broker import canned_broker
from kctl.config.sections import ExporterSection, StatusSection
from kctl.exporter import Exposition
from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.groups.snapshot import Clusters
from kctl.kafka.client.access import plain
from kctl.start.signals import tune_process

GZIPPED = ("", "gzip")


class Size(NamedTuple):
    partitions: int
    """Of a topic."""
    topics: int
    groups: int
    per_group: int
    """Topics that a group reads."""
    target_ms: float | None = None
    target_mib: float | None = None
    """Of the whole process."""


SIZES = {
    "S": Size(20, 10, 20, 3),
    "M": Size(20, 100, 200, 10, 40),
    "L": Size(100, 100, 100, 10, 120, 200),
    "many-groups": Size(1, 1000, 65_000, 1),
    "wide": Size(100, 100, 500, 10),
}
TARGET_SCRAPE_MS = 10.0


def measured(size: Size, cycles: int) -> dict[str, object]:
    with canned_broker(*size[:4]) as (address, give):
        cluster = CollectedCluster("main", plain(address), ExporterSection(timeout_seconds=60.0), StatusSection())
        collector = ClusterCollector(cluster)
        exposition = Exposition(lambda: Clusters(tuple(filter(None, [collector.latest]))))
        exposition.render(*GZIPPED)
        before = psutil.Process().memory_info().rss
        collector.collect()
        exposition.render(*GZIPPED)
        results: dict[str, object] = {}
        for name, line in (("moving", "commit"), ("still", None), ("keeping_up", "keep up")):
            results[name] = _cycles(collector, exposition, lambda line=line: line and give(line), cycles)  # type: ignore[misc]
        rss = psutil.Process().memory_info().rss
        results["rss_mib"], results["process_mib"] = round((rss - before) / 2**20, 1), round(rss / 2**20, 1)
        give("keep up")
        results["loop_held_ms"] = asyncio.run(_held(collector, exposition))
        started = perf_counter()
        body, _, _ = exposition.render(*GZIPPED)
        results["scrape_ms"] = round((perf_counter() - started) * 1000, 2)
        results["page_bytes"] = len(exposition.render()[0])
        results["gzipped_bytes"] = len(body)
        latest = collector.latest
        assert latest is not None
        assert latest.is_ready, latest.errors
        assert not latest.errors
        results["group_partitions"] = sum(len(group.partitions) for group in latest.groups)
        results["requests"] = dict(collector._reader.asked)
        collector._reader.close()
        collector._thread.shutdown()
    return results


def _cycles(
    collector: ClusterCollector, exposition: Exposition, prepare: Callable[[], object], cycles: int
) -> dict[str, float]:
    cpu, judging, rendered, wall = [], [], [], []
    for _ in range(cycles):
        prepare()
        gc.collect()
        began, started = process_time(), perf_counter()
        with _judging(collector) as took:
            collector.collect()
        middle = process_time()
        exposition.render(*GZIPPED)
        cpu.append(process_time() - began)
        judging.append(took[0])
        rendered.append(process_time() - middle)
        wall.append(perf_counter() - started)
    found = {"cpu_ms": cpu, "judging_cpu_ms": judging, "page_cpu_ms": rendered, "wall_ms": wall}
    return {name: round(statistics.median(values) * 1000, 1) for name, values in found.items()}


async def _held(collector: ClusterCollector, exposition: Exposition) -> float:
    """How late an event loop was at most while a thread went through a cycle."""

    def cycle() -> None:
        collector.collect()
        exposition.render(*GZIPPED)

    working, late = asyncio.get_running_loop().run_in_executor(None, cycle), 0.0
    while not working.done():
        began = perf_counter()
        await asyncio.sleep(0.001)
        late = max(late, perf_counter() - began - 0.001)
    return round(late * 1000, 1)


@contextmanager
def _judging(collector: ClusterCollector) -> Iterator[list[float]]:
    """The processor time that the status rules take meanwhile."""
    assessor, took = collector._assessor, [0.0]
    assess = assessor.assess

    def measured(*given: Any) -> Any:
        began = process_time()
        found = assess(*given)
        took[0] += process_time() - began
        return found

    assessor.assess = measured  # type: ignore[method-assign,assignment]
    try:
        yield took
    finally:
        assessor.assess = assess  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=["S", "M", "L"], choices=list(SIZES))
    options = parser.parse_args()
    tune_process()
    is_met = True
    for name in options.sizes:
        size = SIZES[name]
        result = measured(size, options.cycles)
        keeping_up = result["keeping_up"]
        assert isinstance(keeping_up, dict)
        is_met = is_met and (size.target_ms is None or keeping_up["cpu_ms"] <= size.target_ms)
        is_met = is_met and (size.target_mib is None or result["process_mib"] <= size.target_mib)  # type: ignore[operator]
        targets = {"target_cpu_ms": size.target_ms, "target_process_mib": size.target_mib}
        line = {"benchmark": "groups_cycle", "size": name, **result, **targets}
        print(json.dumps({**line, "load": os.getloadavg()[0]}), flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
