import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import Event, WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from tests.caller import Caller
from tests.conftest import eventually


class Bench:
    def __init__(self, run_dir: Path, to_close: ExitStack) -> None:
        self.run_dir = run_dir
        self.path = run_dir / "worker-0.sock"
        self._to_close = to_close

    def serve(self, snapshot: Snapshot | None = None, **settings: Any) -> AgentServer:
        server = AgentServer(self.run_dir, "worker-0", **settings)
        if snapshot is not None:
            server.publish(snapshot)
        server.start()
        self._to_close.callback(server.close)
        return server

    def connect(self) -> Caller:
        return self._to_close.enter_context(Caller(self.path))


@pytest.fixture
def bench(short_dir: Path) -> Iterator[Bench]:
    with ExitStack() as to_close:
        yield Bench(short_dir, to_close)


@pytest.fixture
def snapshot() -> Snapshot:
    now = monotonic()
    return Snapshot(
        now,
        replace(
            WorkerReply.starting("worker-0", "worker"),
            state="running",
            state_seconds=30.0,
            uptime_seconds=60.0,
            batch_id=3,
            rows_per_second=133.3,
            batch_running_seconds=4.0,
            batches_total=3,
            events=(Event(1_700_000_000.0, "rewound", "the group was reset", "orders", 0, 100, 5),),
        ),
        replies=(
            PartitionsReply(
                (
                    PartitionReply("orders", 0, 5, 100, 120, 130, 30, 1_700_000_000.5, 7, 2.0, 5, 7.0),
                    PartitionReply("orders", 1, generation=7),
                )
            ),
            StorageReply("file:/data/storage.sqlite", 10, 3, None, 0, 4096, 1000, dead_limit=50, full="no room"),
        ),
    )


@pytest.fixture(autouse=True)
def no_descriptor_left_behind() -> Iterator[None]:
    before = _descriptors()
    yield
    eventually(lambda: not (_descriptors() - before), what="descriptors of the test are still open")


def _descriptors() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:")):
            found.add(f"{fd} {target}")
    return found
