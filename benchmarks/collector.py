"""What collecting costs: 10,000 partitions of one group by the master's collector, and 100 groups x 400 partitions.

    python -m benchmarks.collector [--rounds 7]

Three real brokers, 10 topics of 1,000 partitions. `collector_partitions`: the collector that a master runs, the answers
of four workers made up; a master serves one group, so many groups are not its business. `collector_groups`: 100 groups
with 400 partitions each as `kctl kafka lag` reads them. Both ask over our own connections on kafka-python's protocol
classes. Medians of wall clock, of processor time, requests of a round, and the share of the processor time that was
spent inside kafka-python's loop. No target.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from benchmarks._collected import GROUP, TOPIC_NAMES, collector_over
from benchmarks._fleet import progress
from kctl.groups.broker_cache import BrokerCache
from kctl.kafka.client.access import of_fleet, plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import topics_of
from kctl.kafka.lag import read_lag
from kctl.kafka.offsets import commit, log_offsets
from kctl.start.signals import tune_process
from tests.servers.kafka_cluster import KafkaCluster

PARTITIONS = 10_000
PER_TOPIC = PARTITIONS // len(TOPIC_NAMES)
GROUPS = 100
PER_GROUP = 400
TIMEOUT_SECONDS = 60.0


@dataclass
class Library:
    """What went on inside kafka-python since the last `reset`."""

    cpu_seconds: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    _is_inside: bool = False

    def reset(self) -> None:
        self.cpu_seconds, self.requests = 0.0, Counter()

    def watch(self, kind: Any, names: Iterable[str]) -> None:
        """Times these methods, which are called on one thread."""
        for name in names:
            setattr(kind, name, self._timed(getattr(kind, name)))

    def count(self, kind: Any) -> None:
        """Counts what is sent by `kind.send`."""
        send = kind.send

        @wraps(send)
        def counted(manager: Any, request: Any, *args: Any, **options: Any) -> Any:
            self.requests[request.name.removesuffix("Request")] += 1
            return send(manager, request, *args, **options)

        kind.send = counted

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*args: Any, **options: Any) -> Any:
            if self._is_inside:
                return method(*args, **options)
            self._is_inside, started = True, time.thread_time()
            try:
                return method(*args, **options)
            finally:
                self._is_inside = False
                self.cpu_seconds += time.thread_time() - started

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description="what collecting costs")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    library = Library()
    library.count(KafkaConnectionManager)
    library.watch(NetworkSelector, ["run"])
    tune_process()
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place:
        folder = Path(place)
        # Small index files: they are mapped into memory, and a thousand partitions would map gigabytes.
        properties = {"default.replication.factor": "1", "log.index.size.max.bytes": "65536"}
        with KafkaCluster(folder / "cluster", properties=properties) as brokers:
            servers = brokers.bootstrap_servers
            _prepare(servers)
            asyncio.run(_partitions(servers, folder, rounds, library))
            asyncio.run(_groups(servers, rounds, library))


def _prepare(servers: str) -> None:
    progress(f"{len(TOPIC_NAMES)} topics of {PER_TOPIC} partitions")
    with KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=120_000) as admin:
        for topic in TOPIC_NAMES:
            admin.create_topics({topic: {"num_partitions": PER_TOPIC, "replication_factor": 1}}, timeout_ms=120_000)
    with ClusterConnection(plain(servers), 300) as connection:
        keys = {topic: [(topic, number) for number in range(PER_TOPIC)] for topic in TOPIC_NAMES}
        known = topics_of(connection.open(TOPIC_NAMES))
        for topic in TOPIC_NAMES:
            while {each.error for each in log_offsets(connection, known, keys[topic]).values()} != {None}:
                connection.pause()
                known = topics_of(connection.metadata(TOPIC_NAMES))
            commit(connection, GROUP, dict.fromkeys(keys[topic], 0))
        progress(f"{GROUPS} groups of {PER_GROUP} partitions")
        for number in range(GROUPS):
            some = keys[TOPIC_NAMES[number % len(TOPIC_NAMES)]][:PER_GROUP]
            assert set(commit(connection, _group(number), dict.fromkeys(some, 0)).values()) == {None}


def _group(number: int) -> str:
    return f"group-{number}"


async def _partitions(servers: str, folder: Path, rounds: int, library: Library) -> None:
    clusters: list[BrokerCache] = []

    def cluster(config: Any) -> BrokerCache:
        clusters.append(BrokerCache.of(config.kafka, of_fleet(config), TIMEOUT_SECONDS))
        return clusters[0]

    collector, _ = collector_over(PARTITIONS, folder, cluster=cluster, servers=servers)

    async def collect() -> int:
        snapshot = await collector.collect()
        assert all(part in snapshot.last_success for part in ("committed", "offsets", "group")), clusters[0].error
        return len(snapshot.partitions)

    await _measure("collector_partitions", collect, PARTITIONS, rounds, library)
    await clusters[0].close()


async def _groups(servers: str, rounds: int, library: Library) -> None:
    names = [_group(number) for number in range(GROUPS)]

    async def collect() -> int:
        with ClusterConnection(plain(servers), TIMEOUT_SECONDS) as connection:
            connection.open()
            rows, problems = read_lag(connection, names)
        assert problems == []
        return len(rows)

    await _measure("collector_groups", collect, GROUPS * PER_GROUP, rounds, library)


async def _measure(
    name: str, collect: Callable[[], Awaitable[int]], expected: int, rounds: int, library: Library
) -> None:
    wall, cpu, shares = [], [], []
    for turn in range(rounds + 2):  # the first connects, and compiles what is compiled once
        library.reset()
        started, started_cpu = time.perf_counter(), time.process_time()
        rows = await collect()
        took, took_cpu = time.perf_counter() - started, time.process_time() - started_cpu
        assert rows == expected, f"{rows} of {expected} rows"
        if turn >= 2:
            wall.append(took)
            cpu.append(took_cpu)
            shares.append(library.cpu_seconds / took_cpu)
    line = {
        "benchmark": name,
        "rows": expected,
        "seconds": round(statistics.median(wall), 2),
        "cpu_seconds": round(statistics.median(cpu), 2),
        "share_in_client_library": round(statistics.median(shares), 2),
        "requests": sum(library.requests.values()),
        "by_name": dict(sorted(library.requests.items())),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
