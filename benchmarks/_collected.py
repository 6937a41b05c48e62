"""The real collector over answers and broker offsets that are made up: as many partitions as one likes, and a commit
of some of them in each collection. For benchmarks of what comes after the collecting; with brokers, of that too."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Raw

from kctl.config.load import load
from kctl.config.sections import Config
from kctl.groups.broker_cache import BrokerCache
from kctl.hosts.hosts import Hosts
from kctl.http.app import create_app
from kctl.http.server import HttpServer, bind
from kctl.master.collector import Collector
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.reduction import STALE_SECONDS
from kctl.master.snapshot import FleetSnapshot
from kctl.master.supervisor import Supervisor
from kctl.master.verdict import Verdicts
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness, GroupStats
from kctl.rows.columns import Names, PartitionColumns
from kctl.rpc.fan_out import FanOut
from kctl_agent.rpc.wire import JsonObject, json_text
from tests.fleet_snapshot import source_of

__all__ = ["GROUP", "SERIES_PER_PARTITION", "TOPIC_NAMES", "collector_over", "served", "service_over"]

SERIES_PER_PARTITION = 8
GROUP = "g"
TOPICS = 10
TOPIC_NAMES = tuple(f"orders.{number}" for number in range(TOPICS))
WORKERS = 4


class _Fleet:
    """Stands in for the three sources of the collector."""

    def __init__(self, partitions: int, first: int = 0) -> None:
        self.names = sorted((TOPIC_NAMES[n % TOPICS], n // TOPICS) for n in range(first, first + partitions))
        self._columns = Names({GROUP: tuple(self.names)})
        self.round = 0
        self.error: str | None = None
        self.last_success = {"committed": 0.0, "offsets": 0.0, "group": 0.0}

    def memory_limits(self) -> dict[str, int]:
        return {}

    async def sockets(self) -> dict[str, Path]:
        return {f"worker-{n}": Path() for n in range(WORKERS)}

    def concerned(self, sockets: dict[str, Path], _rpc: str) -> dict[str, Path]:
        return sockets

    async def ask(self, sockets: dict[str, Path], rpc: str, _params: JsonObject, _deadline: float) -> FanOut[Raw]:
        # Agents encode in processes of their own: here in a thread, or the event loop would be held for 40 ms.
        answers = [await asyncio.to_thread(self._encoded, rpc, number) for number in range(len(sockets))]
        return FanOut([Answer(name, raw, 0.1) for name, raw in zip(sockets, answers, strict=True)], [])

    def _encoded(self, rpc: str, number: int) -> Raw:
        return Raw(json_text(self._answer(rpc, number)).encode())

    def _answer(self, rpc: str, number: int) -> JsonObject:
        if rpc == "offset_checker":
            return {"rows": [self._row(n) for n in range(number, len(self.names), WORKERS)]}
        if rpc == "workers":
            return {
                "name": f"worker-{number}",
                "kind": "worker",
                "state": "running",
                "last_batch_seconds": 1.0,
                "events": [],
            }
        if rpc == "member_leader":
            return {"member_id": f"m-{number}", "generation": 1, "leader": "m-0", "partitions": []}
        if rpc == "block_size":
            return {"storage": "file", "pending": 5, "processing": 0, "dead": 0, "bytes": 1000, "limit": 0}
        if rpc == "ping":
            return {"name": f"worker-{number}", "pid": number + 1}
        return {"rows": []}

    def _row(self, n: int) -> JsonObject:
        topic, partition = self.names[n]
        committed = self._committed(n)
        return {
            "topic": topic,
            "partition": partition,
            "start": 0,
            "committed": committed,
            "position": committed,
            "end": committed + 500 + n % 300,
            "last_timestamp": time.time() - n % 17 / 7,
            "generation": 1,
            "age_seconds": 0.1,
        }

    def _committed(self, n: int) -> int:
        return 1000 * (self.round + n % 7)

    async def refresh(self, _timeout_seconds: float) -> None:
        self.round += 1

    def snapshot(self) -> BrokerSnapshot:
        now, size = time.monotonic(), len(self.names)
        committed = np.array([self._committed(n) for n in range(size)], np.int64)
        end, start = committed + 500 + np.arange(size) % 300, np.zeros(size, np.int64)
        partitions = PartitionColumns(self._columns, now, np.full(size, now - 0.5), start, committed, committed, end)
        return BrokerSnapshot(partitions, GroupStats("stable", WORKERS))

    def freshness(self) -> Freshness:
        return Freshness(0.5, 0.5, 4.0, None)

    def status(self) -> tuple[()]:
        return ()

    def on_heartbeats(self, _beats: object, _at: float) -> None:
        pass

    async def resident_bytes(self) -> dict[str, int]:
        return {}


def collector_over(
    partitions: int,
    folder: Path,
    prepare: Callable[[FleetSnapshot], None] = lambda _: None,
    cluster: Callable[[Config], BrokerCache] | None = None,
    servers: str = "127.0.0.1:1",
) -> tuple[Collector, EventFeed]:
    """A collector, and the feed that it publishes to. `folder` is for its configuration. `cluster` makes what asks
    brokers at `servers`; without it their offsets are made up as well."""
    path = folder / "kctl.toml"
    topics = ", ".join(f'"{topic}"' for topic in TOPIC_NAMES)
    path.write_text(
        f'[kafka]\nbootstrap_servers = "{servers}"\ngroup = "{GROUP}"\ntopics = [{topics}]\n'
        "[collect]\ntimeout_seconds = 30.0\n"
    )
    config, fleet, feed = load(path, {}), _Fleet(partitions), EventFeed()
    members, supervisor = cast(Members, fleet), cast(Supervisor, cast(Any, fleet))
    brokers = cast(BrokerCache, fleet) if cluster is None else cluster(config)
    collector = Collector(config, members, brokers, supervisor, feed, dict)
    collector.prepare.append(prepare)
    return collector, feed


def service_over(collector: Collector, feed: EventFeed, partitions: int, first: int, hosts: Hosts) -> MasterService:
    """What answers for a host of a fleet of several, which has so many partitions of all, from `first` on."""
    fleet = _Fleet(partitions, first)
    members, brokers = cast(Members, fleet), cast(BrokerCache, fleet)
    return MasterService(members, brokers, lambda: (), Verdicts(collector.latest, STALE_SECONDS), feed, hosts)


@asynccontextmanager
async def served(
    collector: Collector, feed: EventFeed, collections: int = 1, **parts: Any
) -> AsyncIterator[HttpServer]:
    """A server over the collector, both running, once it has collected so often; `parts` are more of its source."""
    verdicts = Verdicts(collector.latest, STALE_SECONDS)
    source = source_of(None, latest=collector.latest, verdicts=verdicts, feed=feed, clock=time.monotonic, **parts)
    server = HttpServer(create_app(source), bind("127.0.0.1", 0))
    tasks = [asyncio.create_task(collector.run()), asyncio.create_task(server.serve())]
    try:
        await feed.wait_beyond(collections)
        yield server
    finally:
        server.stop()
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
