"""A worker for `master_at_rest`: an agent with eight partitions whose figures are published twice a second."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kctl_agent import lifeline
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import PartitionFigures, Snapshot, WorkFigures

PARTITIONS = 8
PUBLISH_SECONDS = 0.5


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    leave = threading.Event()
    lifeline.hold(leave.set)
    first, started_at, batches = int(settings["name"].rpartition("-")[2]) * PARTITIONS, time.monotonic(), 0
    topic = settings["kafka"]["topics"][0]
    server = AgentServer(Path(settings["run_dir"]), settings["name"])
    is_open = False
    while not leave.wait(PUBLISH_SECONDS if is_open else 0):
        now, batches = time.monotonic(), batches + 1
        partitions = tuple(
            PartitionFigures(topic, first + each, 0, batches * 100, batches * 100, batches * 100 + 7, time.time(), now)
            for each in range(PARTITIONS)
        )
        snapshot = Snapshot(settings["name"], "worker", "running", started_at, started_at, now, partitions=partitions)
        server.publish(_working(snapshot, batches))
        if not is_open:
            server.start()
            is_open = True
    server.close()


def _working(snapshot: Snapshot, batches: int) -> Snapshot:
    from dataclasses import replace

    return replace(snapshot, work=WorkFigures(batches_total=batches, rows_per_second=200.0, last_batch_seconds=0.4))


if __name__ == "__main__":
    main()
