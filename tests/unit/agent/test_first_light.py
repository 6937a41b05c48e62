from __future__ import annotations

import shutil
import socket
import tempfile
import time
from pathlib import Path

from kctl_agent.messages import Reply, Request, Role, wire_method
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import MemberFigures, PartitionFigures, Snapshot
from kctl_agent.wire import MAX_REPLY_BYTES, Decoder, JsonObject, encode


def test_every_command_is_answered() -> None:
    run_dir = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    now = time.monotonic()
    try:
        with AgentServer(run_dir, "worker-0") as server, socket.socket(socket.AF_UNIX) as peer:
            server.publish(
                Snapshot(
                    "worker-0",
                    "worker",
                    "running",
                    now,
                    now,
                    now,
                    member=MemberFigures("g", "range"),
                    partitions=(PartitionFigures("t", 0, 0, 1, 2, 3, None, now),),
                )
            )
            peer.connect(str(run_dir / "worker-0.sock"))
            decoder = Decoder(MAX_REPLY_BYTES)
            for rpc in ("ping", "describe", "kafka_lag", "offset_checker", "member_leader", "workers", "block_size"):
                peer.sendall(encode(Request(Role.MASTER, rpc, wire_method(rpc), id=rpc).to_json()))
                frames: list[JsonObject] = []
                while not frames:
                    frames = decoder.feed(peer.recv(65536))
                reply = Reply.parse(frames[0])
                assert reply.id == rpc
                assert reply.ok is (rpc != "block_size")
    finally:
        shutil.rmtree(run_dir)
