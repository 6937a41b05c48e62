"""A test child that keeps the worker's side of the start protocol: settings on stdin, an agent, SIGTERM, end of stdin.

It has one partition of the first topic and claims committed offset 40 of 100. It has a grandchild in a process group
of its own, as a Spark driver has. `KCTL_TEST_WORKER` in Spark's conf makes it misbehave: `boot_failure`, `stubborn`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from kctl_agent.server import AgentServer
from kctl_agent.snapshot import PartitionFigures, Snapshot, StorageFigures


def snapshot(name: str, topic: str, started_at: float) -> Snapshot:
    now = time.monotonic()
    return Snapshot(
        name=name,
        kind="worker",
        state="running",
        state_since=started_at,
        started_at=started_at,
        published_at=now,
        partitions=(
            PartitionFigures(
                topic=topic,
                partition=int(name.rpartition("-")[2]),
                start=0,
                committed=40,
                position=50,
                end=100,
                last_timestamp=None,
                taken_at=now,
            ),
        ),
        storage=StorageFigures(identity="file:/stand-in", pending=7, processing=0, dead=0, bytes=70),
    )


def main() -> int:
    settings = json.loads(sys.stdin.readline())
    behaviour = settings["pipeline"]["conf"].get("KCTL_TEST_WORKER", "")
    print(f"{settings['name']} starts", flush=True)
    if behaviour == "boot_failure":
        print("no such transform: module:function", flush=True)
        return 78
    leave = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else lambda *_: leave.set())
    grandchild = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], process_group=0, stdin=subprocess.DEVNULL
    )

    def leave_without_master() -> None:
        sys.stdin.read()
        leave.set()

    threading.Thread(target=leave_without_master, daemon=True).start()
    server = AgentServer(Path(settings["run_dir"]), settings["name"])
    topic, started_at = settings["kafka"]["topics"][0], time.monotonic()
    server.publish(snapshot(settings["name"], topic, started_at))
    server.start()
    while not leave.wait(0.1):
        server.publish(snapshot(settings["name"], topic, started_at))
    server.close()
    grandchild.kill()
    grandchild.wait()
    print(f"{settings['name']} leaves", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
