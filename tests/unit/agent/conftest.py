"""Agents that are served and asked in one process, and a check that no descriptor is left over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kctl_agent.server import AgentServer
from kctl_agent.snapshot import (
    BrokerMetadata,
    Event,
    MemberInfo,
    PartitionMetadata,
    PartitionStats,
    Snapshot,
    StorageUsage,
    WorkStats,
)
from tests.caller import Caller


@pytest.fixture
def connect() -> Iterator[Callable[[Path], Caller]]:
    callers: list[Caller] = []

    def make(path: Path) -> Caller:
        callers.append(Caller(path))
        return callers[-1]

    yield make
    for caller in callers:
        caller.socket.close()


@pytest.fixture
def serve(short_dir: Path) -> Iterator[Callable[..., AgentServer]]:
    """Starts an agent on `short_dir`, with a snapshot published unless it is None."""
    servers: list[AgentServer] = []

    def start(name: str = "worker-0", snapshot: Snapshot | None = None, **settings: Any) -> AgentServer:
        server = AgentServer(short_dir, name, **settings)
        if snapshot is not None:
            server.publish(snapshot)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def snapshot() -> Snapshot:
    """A worker in the middle of its work, published now."""
    now = monotonic()
    return Snapshot(
        name="worker-0",
        kind="worker",
        state="running",
        state_since=now - 30,
        started_at=now - 60,
        published_at=now,
        member=MemberInfo("orders-group", "range", member_id="m-1", generation=7, leader="m-1"),
        partitions=(
            PartitionStats("orders", 0, 5, 100, 120, 130, 1_700_000_000.5, now - 2),
            PartitionStats("orders", 1, None, None, None, None, None, None),
        ),
        brokers=(BrokerMetadata(1, "b1.example", 9092, None, True),),
        topics=(PartitionMetadata("orders", 0, 1, (1, 2), (1,), (2,)),),
        storage=StorageUsage(
            "file:/data/storage.sqlite", 10, None, 0, 4096, 1000, delayed=3, dead_limit=50, full="no room"
        ),
        work=WorkStats("q-1", 3, now - 4, 1.5, 200, 133.3, 600, 3, None),
        rss_bytes=50_000_000,
        events=(Event(1_700_000_000.0, "rewound", "the group was reset", "orders", 0, 100, 5),),
    )


@pytest.fixture(autouse=True)
def no_descriptor_left_behind(eventually: Callable[..., object]) -> Iterator[None]:
    """A test ends with the sockets, pipes and epoll sets that it began with."""
    before = _descriptors()
    yield
    eventually(lambda: not (_descriptors() - before), what="descriptors of the test are still open")


def _descriptors() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the one that was listing
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:")):
            found.add(f"{fd} {target}")
    return found
