"""A picture of a fleet, a source that gives it, and ways to ask: in process, and over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx

from kctl.http import Access, HttpServer, Source, Token, bind, create_app
from kctl.master.events import EventFeed
from kctl.master.snapshot import FleetSnapshot, Reduced, WorkerStatus
from kctl.reduce import GroupFigures, PartitionRow
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Status
from kctl_agent.wire import JsonObject

TAKEN_AT = 1000.0
NOW = 1002.0
UNIX = 1_700_000_000.0
TOKEN = "0123456789abcdef-token"
TOKENS = (Token(TOKEN, may_act=True),)


def partition(number: int, lag: int | None = 6, worker: str | None = "worker-0") -> PartitionRow:
    end = None if lag is None else 10
    return PartitionRow("orders", number, 0, None if lag is None else 10 - lag, 4, end, None, worker, 1, 0.5)


def checked(row: PartitionRow) -> JsonObject:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "current_offset": row.committed,
        "kafka_max_offset": row.end,
        "remaining_count": row.lag,
        "worker": row.worker,
        "age_seconds": row.age_seconds,
    }


def worker(name: str, state: str = "running") -> WorkerStatus:
    return WorkerStatus(name, "worker", "running", state, 1, 1.0, MappingProxyType({"signal": 1}), None, None, "log")


def picture(partitions: int = 3, *, sequence: int = 7) -> FleetSnapshot:
    """The last partition is unknown, unowned and stalled; worker-1 did not answer."""
    rows = [partition(number) for number in range(partitions - 1)] + [partition(partitions - 1, None, None)]
    results: dict[str, JsonObject] = {
        "kafka_lag": {
            "total": 6 * (partitions - 1),
            "unknown": [{"topic": "orders", "partition": partitions - 1}],
            "topics": {"orders": 6 * (partitions - 1)},
        },
        "offset_checker": {"rows": [checked(row) for row in rows]},
        "block_size": {"pending": 7, "processing": 0, "dead": None, "bytes": 512, "limit": 0},
        "member_leader": {
            "leader": "m-0",
            "generation": 3,
            "agreed": True,
            "members": [
                {"member_id": "m-0", "worker": "worker-0", "is_leader": True, "generation": 3, "partitions": []}
            ],
        },
        "metadata_brokers": {
            "rows": [
                {"node_id": node, "host": "127.0.0.1", "port": 9092 + node, "rack": None, "controller": node == 1}
                for node in (1, 2, 10)
            ]
        },
        "metadata_topics": {
            "rows": [
                {
                    "topic": "orders",
                    "partition": n,
                    "leader_id": 1,
                    "replica_nodes": [1],
                    "isr_nodes": [1],
                    "offline": [],
                }
                for n in range(partitions)
            ]
        },
        "workers": {
            "rows": [
                {"name": "sinker-0", "kind": "sinker", "state": "idle", "age_seconds": 0.1, "events": []},
                {"name": "worker-0", "kind": "worker", "state": "running", "age_seconds": 0.1, "events": []},
            ]
        },
    }
    failed = (Failed("worker-1", "timeout", "no answer"),)
    ok, stalled = Assessment(Status.OK, "commits come", 2.5, -1.0, 6.0), Assessment(Status.STALLED, "it stands still")
    return FleetSnapshot(
        cluster="main",
        group="g",
        taken_at=TAKEN_AT,
        collect_seconds=0.1,
        commands={
            name: Reduced(result, ("worker-0", "worker-1"), ("worker-0",), failed, 0.5)
            for name, result in results.items()
        },
        partitions=tuple(rows),
        workers=(worker("worker-0"), worker("worker-1", "backoff")),
        resident_bytes={},
        last_success={"committed": UNIX - 1, "offsets": UNIX - 1},
        assessments=(*[ok] * (partitions - 1), stalled),
        group_assessment=Assessment(Status.STALLED, "1 of 3 partitions stalled", 2.5, -2.0, None),
        broker_group=GroupFigures("stable", 2),
        sequence=sequence,
        taken_at_unix=UNIX - 2,
    )


def healthy() -> FleetSnapshot:
    whole = picture()
    ok = whole.assessments[0]
    return replace(whole, workers=(worker("worker-0"),), assessments=(ok,) * 3, group_assessment=ok)


def source_of(latest: FleetSnapshot | None, **more: Any) -> Source:
    given: dict[str, Any] = {
        "latest": lambda: latest,
        "render_metrics": lambda accept, _: (f"metrics for {accept}\n".encode(), "text/plain", False),
        "sparkline": lambda topic, number: [None, number],
        "feed": EventFeed(),
        "clock": lambda: NOW,
        "unix_clock": lambda: UNIX,
    }
    return Source(**{**given, **more})


async def ask(
    latest: FleetSnapshot | Source | None,
    path: str,
    method: str = "GET",
    access: Access | None = None,
    **options: Any,
) -> httpx.Response:
    """In process, without a socket."""
    source = latest if isinstance(latest, Source) else source_of(latest)
    transport = httpx.ASGITransport(create_app(source, access).guarded, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path, **options)


@asynccontextmanager
async def serving(source: Source, access: Access | None = None, host: str = "127.0.0.1") -> AsyncIterator[HttpServer]:
    """Over a real socket, in this loop."""
    server = HttpServer(create_app(source, access), bind(host, 0), access)
    task = asyncio.create_task(server.serve())
    try:
        yield server
    finally:
        server.stop()
        async with asyncio.timeout(10):
            await task
