"""The stand-ins of the benchmarks fail here, instead of in a long run, when they no longer fit."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks._collected import TOPIC_NAMES, collector_over
from benchmarks.against import compared
from benchmarks.first_batch import STEPS, steps_of
from kctl.master.reduction import COMMANDS


def test_the_collector_of_the_benchmarks_collects_a_whole_snapshot(tmp_path: Path) -> None:
    collector, _ = collector_over(20, tmp_path)

    snapshot = asyncio.run(collector.collect())

    assert {(row.topic, row.partition) for row in snapshot.partitions} == {(n, p) for n in TOPIC_NAMES for p in (0, 1)}
    results = {name: snapshot.reduced(name) for name in COMMANDS.keys() - {"describe", "kafka_lag"}}
    assert {name: result.failed for name, result in results.items() if result.failed} == {}


def test_each_step_of_a_worker_is_found_in_its_log_for_the_first_time(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text(
        "Setting default log level to WARN\n"
        "2026-11-22T19:18:53.438Z INFO kctl_agent.worker.stats starting -> joining\n"
        "2026-11-22T19:18:53.653Z INFO kctl_agent.worker.stats joining -> assigned\n"
        "2026-11-22T19:18:54.107Z INFO kctl_agent.worker reads demo-0 from 0\n"
        "2026-11-22T19:19:54.107Z INFO kctl_agent.worker reads demo-0 from 9\n"
    )
    began = datetime(2026, 11, 22, 19, 18, 50, tzinfo=UTC).timestamp()

    found = {step: round(seconds, 3) for step, seconds in steps_of(log, began).items()}

    assert found == dict(zip(STEPS, (3.438, 3.653, 4.107), strict=True))


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "verdict"),
    [
        ("P2", [9, 5, 5, 5, 5, 5, 1], [4, 4, 4, 4, 4, 4, 9], "worse"),
        ("P2", [9, 4, 5, 5, 5, 5, 1], [4, 4, 4, 4, 4, 4, 9], "same"),
        ("P2", [3, 3, 3, 3, 3, 3, 9], [4, 4, 4, 4, 4, 4, 1], "better"),
        ("P13", [3, 3, 3, 3, 3, 3, 9], [4, 4, 4, 4, 4, 4, 1], "worse"),
        ("P13", [5, 5, 5, 5, 5, 5, 1], [4, 4, 4, 4, 4, 4, 9], "better"),
    ],
)
def test_overlapping_intervals_are_the_same(name: str, ours: list[float], theirs: list[float], verdict: str) -> None:
    assert compared(name, ours, theirs)["verdict"] == verdict
