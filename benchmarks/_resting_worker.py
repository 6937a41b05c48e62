"""A worker for `master_at_rest` and `master_under_load`: a real agent that reports what a real worker reports.

It has eight partitions of an empty topic, is a member of the group, knows broker and topic, publishes twice a second,
and finishes no batch; under load it finishes one each time, and has more and more messages behind it.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kctl_agent.process.stop import StopRequest, watch_parent
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.partitions import (
    BrokerMetadata,
    BrokersReply,
    MemberReply,
    PartitionMetadata,
    PartitionReply,
    PartitionsReply,
    TopicsReply,
)
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot

PARTITIONS = 8
PUBLISH_SECONDS = 0.5
ROWS_A_BATCH = 1000


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    leave = StopRequest()
    watch_parent(leave.ask)
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
    worker = WorkerReply.starting(name, "worker")
    return Snapshot(
        now,
        replace(worker, state="running", query_id="at-rest", rows_per_second=0.0, rss_bytes=150 << 20),
        replies=(
            MemberReply(
                f"{name}-member",
                name,
                1,
                "worker-0-member",
                group=kafka["group"],
                assignor=kafka["assignor"],
                partitions=tuple(TopicPartition(topic, each) for each in own),
            ),
            PartitionsReply(tuple(PartitionReply(topic, each, 0, 0, 0, 0, 0, None, 1, 0.0) for each in own)),
            BrokersReply((BrokerMetadata(1, "127.0.0.1", 9092, None, True),)),
            TopicsReply(
                tuple(PartitionMetadata(topic, each, 1, (1,), (1,), ()) for each in range(workers * PARTITIONS))
            ),
            StorageReply("file:/at-rest", 0, 0, 0, 0, 0, 0, age_seconds=0.0),
        ),
    )


def _refreshed(resting: Snapshot, batches: int, step: int) -> Snapshot:
    """`step` messages have come through each partition with each batch; 0 at rest."""
    now, at = time.monotonic(), batches * step
    partitions = tuple(
        replace(each, committed=at, position=at, end=at + step // 2, lag=step // 2) for each in resting.partitions
    )
    worker = replace(resting.worker, batches_total=batches, rows_per_second=2.0 * step) if step else resting.worker
    others = [each for each in resting.replies if not isinstance(each, PartitionsReply)]
    return replace(resting, published_at=now, replies=(*others, PartitionsReply(partitions)), worker=worker)


if __name__ == "__main__":
    main()
