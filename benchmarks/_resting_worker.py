"""A worker for `master_at_rest` and `master_under_load`: a real agent that reports what a real worker reports.

It has eight partitions of an empty topic, is a member of the group, knows broker and topic, publishes twice a second,
and finishes no batch; under load it finishes one each time, and has more and more messages behind it.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kctl_agent.process import parent_watch
from kctl_agent.process.stop import Stop
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import (
    BrokerMetadata,
    MemberInfo,
    PartitionMetadata,
    PartitionStats,
    Snapshot,
    StorageUsage,
    WorkStats,
)

PARTITIONS = 8
PUBLISH_SECONDS = 0.5
ROWS_A_BATCH = 1000


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    leave = Stop()
    parent_watch.start(leave.ask)
    workers = int(settings["spark"]["conf"]["KCTL_BENCHMARK_WORKERS"])
    server = AgentServer(Path(settings["run_dir"]), settings["name"])
    step = ROWS_A_BATCH if settings["spark"]["conf"].get("KCTL_BENCHMARK_LOAD") else 0
    resting, batches = _at_rest(settings, workers), 0
    server.publish(_refreshed(resting, 0, step))
    server.start()
    while not leave.wait(PUBLISH_SECONDS):
        batches += 1
        server.publish(_refreshed(resting, batches, step))
    server.close()


def _at_rest(settings: dict[str, Any], workers: int) -> Snapshot:
    name, kafka, now = settings["name"], settings["kafka"], time.monotonic()
    topic, number = kafka["topics"][0], int(name.rpartition("-")[2])
    own = range(number * PARTITIONS, (number + 1) * PARTITIONS)
    return Snapshot(
        name=name,
        kind="worker",
        state="running",
        state_since=now,
        started_at=now,
        published_at=now,
        member=MemberInfo(kafka["group"], kafka["assignor"], f"{name}-member", 1, "worker-0-member"),
        partitions=tuple(PartitionStats(topic, each, 0, 0, 0, 0, None, now) for each in own),
        brokers=(BrokerMetadata(1, "127.0.0.1", 9092, None, True),),
        topics=tuple(PartitionMetadata(topic, each, 1, (1,), (1,), ()) for each in range(workers * PARTITIONS)),
        storage=StorageUsage("file:/at-rest", 0, 0, 0, 0, 0),
        work=WorkStats(query_id="at-rest", rows_per_second=0.0),
        rss_bytes=150 << 20,
    )


def _refreshed(resting: Snapshot, batches: int, step: int) -> Snapshot:
    """`step` messages have come through each partition with each batch; 0 at rest."""
    now, at = time.monotonic(), batches * step
    partitions = tuple(
        replace(each, committed=at, position=at, end=at + step // 2, taken_at=now) for each in resting.partitions
    )
    work = replace(resting.work, batches_total=batches, rows_per_second=2.0 * step) if step else resting.work
    return replace(resting, published_at=now, partitions=partitions, work=work)


if __name__ == "__main__":
    main()
