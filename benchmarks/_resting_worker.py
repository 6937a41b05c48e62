"""A worker for `master_at_rest`: a real agent that tells what a real worker at rest tells, twice a second.

It has eight partitions of an empty topic, is a member of the group, knows broker and topic, and finishes no batch.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kctl_agent import lifeline
from kctl_agent.server import AgentServer
from kctl_agent.sinker.stop import Stop
from kctl_agent.snapshot import (
    BrokerFigures,
    MemberFigures,
    PartitionFigures,
    Snapshot,
    StorageFigures,
    TopicPartitionFigures,
    WorkFigures,
)

PARTITIONS = 8
PUBLISH_SECONDS = 0.5


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    leave = Stop()
    lifeline.hold(leave.ask)
    workers = int(settings["pipeline"]["conf"]["KCTL_BENCHMARK_WORKERS"])
    server = AgentServer(Path(settings["run_dir"]), settings["name"])
    resting = _at_rest(settings, workers)
    server.publish(_looked_again(resting))
    server.start()
    while not leave.wait(PUBLISH_SECONDS):
        server.publish(_looked_again(resting))
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
        member=MemberFigures(kafka["group"], kafka["assignor"], f"{name}-member", 1, "worker-0-member"),
        partitions=tuple(PartitionFigures(topic, each, 0, 0, 0, 0, None, now) for each in own),
        brokers=(BrokerFigures(1, "127.0.0.1", 9092, None, True),),
        topics=tuple(TopicPartitionFigures(topic, each, 1, (1,), (1,), ()) for each in range(workers * PARTITIONS)),
        storage=StorageFigures("file:/at-rest", 0, 0, 0, 0, 0),
        work=WorkFigures(query_id="at-rest", rows_per_second=0.0),
        rss_bytes=150 << 20,
    )


def _looked_again(resting: Snapshot) -> Snapshot:
    now = time.monotonic()
    partitions = tuple(replace(each, taken_at=now) for each in resting.partitions)
    return replace(resting, published_at=now, partitions=partitions)


if __name__ == "__main__":
    main()
