"""What the benchmarks stand on besides the product: a stand-in that no longer fits fails here, not in a long run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks._collected import TOPIC_NAMES, collector_over
from kctl.master.reduction import COMMANDS


def test_the_collector_of_the_benchmarks_collects_a_whole_snapshot(tmp_path: Path) -> None:
    collector, _ = collector_over(20, tmp_path)

    snapshot = asyncio.run(collector.collect())

    assert {(row.topic, row.partition) for row in snapshot.partitions} == {(n, p) for n in TOPIC_NAMES for p in (0, 1)}
    results = {name: getattr(snapshot, name) for name in COMMANDS.keys() - {"describe", "kafka_lag"}}
    assert {name: result.failed for name, result in results.items() if result.failed} == {}
