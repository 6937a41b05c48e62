"""Agents that are served and asked in one process, and a check that no descriptor is left over."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kctl_agent.messages import Reply, Request, Role, wire_method
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import (
    BrokerFigures,
    Event,
    MemberFigures,
    PartitionFigures,
    Snapshot,
    StorageFigures,
    TopicPartitionFigures,
    WorkFigures,
)
from kctl_agent.wire import MAX_REPLY_BYTES, Decoder, JsonObject, encode

ANSWER_SECONDS = 10.0


class Caller:
    """A peer under the control of a test: it can speak well, badly, and in pieces."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.connect(os.fsencode(path))
        self._decoder = Decoder(MAX_REPLY_BYTES)
        self._frames: list[JsonObject] = []

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_question(self, rpc: str, id_: str | None = None, **params: Any) -> None:
        self.send(encode(Request(Role.MASTER, rpc, wire_method(rpc), id=id_, params=params).to_json()))

    def read_frame(self) -> JsonObject | None:
        """The next frame, or None when the agent has ended the connection between two frames."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                self._decoder.end()
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def read(self) -> Reply:
        frame = self.read_frame()
        assert frame is not None, "the agent has ended the connection"
        return Reply.parse(frame)

    def ask(self, rpc: str, **params: Any) -> Reply:
        self.send_question(rpc, "7f", **params)
        return self.read()

    def is_ended(self) -> bool:
        """Waits for the next thing to happen."""
        return self.read_frame() is None


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
        member=MemberFigures("orders-group", "range", member_id="m-1", generation=7, leader="m-1"),
        partitions=(
            PartitionFigures("orders", 0, 5, 100, 120, 130, 1_700_000_000.5, now - 2),
            PartitionFigures("orders", 1, None, None, None, None, None, None),
        ),
        brokers=(BrokerFigures(1, "b1.example", 9092, None, True),),
        topics=(TopicPartitionFigures("orders", 0, 1, (1, 2), (1,), (2,)),),
        storage=StorageFigures("file:/data/storage.sqlite", 10, None, 0, 4096, 1000),
        work=WorkFigures("q-1", 3, now - 4, 1.5, 200, 133.3, 600, 3, None),
        rss_bytes=50_000_000,
        events=(Event(1_700_000_000.0, "rewound", "the group was reset", "orders", 0, 100, 5),),
    )


@pytest.fixture(autouse=True)
def no_descriptor_left_behind(eventually: Callable[..., object]) -> Iterator[None]:
    """A test ends with the sockets, pipes and epoll sets that it began with."""
    before = _descriptors()
    yield
    eventually(lambda: not (_descriptors() - before), 10, "descriptors of the test are still open")


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
