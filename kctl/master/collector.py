"""Takes the fleet's picture again and again: all agents and the brokers at once, under one deadline.

Nobody waits for it: requests over HTTP and scrapes read the last picture. What failed is marked in the picture and
leaves the rest of it intact.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from kctl.config import Config
from kctl.kafka.cluster import Cluster
from kctl.master.members import Members
from kctl.master.reduction import reduced, usable
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.supervised import with_supervisor
from kctl.master.supervisor import Supervisor
from kctl.reduce import ClusterFigures, PartitionRow, partition_rows
from kctl.rpc.fan_out import FanOut

__all__ = ["Collector"]

log = logging.getLogger(__name__)

_COMMANDS = {
    "ping": "ping",
    "workers": "workers",
    "kafka_lag": "offset_checker",
    "offset_checker": "offset_checker",
    "block_size": "block_size",
    "member_leader": "member_leader",
    "metadata_brokers": "metadata_brokers",
    "metadata_topics": "metadata_topics",
}
"""Command to the one that is asked for it: `kafka_lag` and `offset_checker` are two views of the same rows, and asked
once they cannot disagree."""


class Collector:
    """Belongs to one event loop; `latest` may be read from any thread."""

    def __init__(self, config: Config, members: Members, cluster: Cluster, supervisor: Supervisor) -> None:
        self._config = config
        self._members = members
        self._cluster = cluster
        self._supervisor = supervisor
        self._agents_success: float | None = None
        self._latest: FleetSnapshot | None = None

    def latest(self) -> FleetSnapshot | None:
        """The last picture; None before the first."""
        return self._latest

    async def run(self) -> None:
        """Collects every `collect.interval_seconds` until cancelled; a late collection does not pile up others."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            self._latest = await self.collect()
            await asyncio.sleep(max(started + self._config.collect.interval_seconds - loop.time(), 0))

    async def collect(self) -> FleetSnapshot:
        """One picture, within about `collect.timeout_seconds`.

        Raises:
            PathError: run_dir cannot be read any more.
        """
        started = asyncio.get_running_loop().time()
        timeout = self._config.collect.timeout_seconds
        sockets = await self._members.sockets()
        asked = sorted(set(_COMMANDS.values()))
        brokers = asyncio.ensure_future(self._cluster.refresh(timeout))
        outcomes = await asyncio.gather(
            *(self._members.ask(self._members.concerned(sockets, rpc), rpc, {}, started + timeout) for rpc in asked),
        )
        await brokers
        by_rpc = dict(zip(asked, outcomes, strict=True))
        if not by_rpc["ping"].failed:
            self._agents_success = time.time()
        figures = self._cluster.figures()
        taken_at = time.monotonic()
        commands, partitions = await asyncio.to_thread(_reduce_all, by_rpc, figures)
        workers = self._supervisor.status()
        commands["workers"] = with_supervisor(commands["workers"], workers)
        return FleetSnapshot(
            cluster=self._config.kafka.cluster,
            group=self._config.kafka.group,
            taken_at=taken_at,
            collect_seconds=asyncio.get_running_loop().time() - started,
            commands=commands,
            partitions=tuple(partitions),
            workers=workers,
            resident_bytes=await self._supervisor.resident_bytes(),
            last_success={
                **({} if self._agents_success is None else {"agents": self._agents_success}),
                **self._cluster.last_success,
            },
        )


def _reduce_all(
    outcomes: Mapping[str, FanOut], figures: ClusterFigures | None
) -> tuple[dict[str, Reduced], list[PartitionRow]]:
    """In a thread: with thousands of partitions this takes longer than a loop should be held."""
    readable = {rpc: usable(rpc, outcome) for rpc, outcome in outcomes.items()}
    commands = {command: reduced(command, readable[asked], figures) for command, asked in _COMMANDS.items()}
    return commands, partition_rows(readable["offset_checker"].answers, figures)
