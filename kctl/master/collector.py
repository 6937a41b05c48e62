"""Takes the fleet's picture again and again: all agents and the brokers at once, under one deadline.

Nobody waits for it: requests over HTTP and scrapes read the last picture. What failed is marked in the picture and
leaves the rest of it intact.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from kctl.config import Config
from kctl.config.sections import size_bytes
from kctl.kafka.cluster import Cluster
from kctl.master.changes import Changes
from kctl.master.events import EventFeed
from kctl.master.health import Heartbeat
from kctl.master.members import Members, heartbeat
from kctl.master.owners import owners
from kctl.master.reduction import of_partitions, reduced, usable, with_gaps
from kctl.master.snapshot import FleetSnapshot, Reduced, RpcFigures, WorkerStatus
from kctl.master.supervised import with_supervisor
from kctl.master.supervisor import Supervisor
from kctl.reduce import ClusterFigures, Freshness, PartitionRow, partition_rows
from kctl.rpc.fan_out import FanOut
from kctl.status import Assessment, Assessor, Rules, of_group

__all__ = ["Collector"]

log = logging.getLogger(__name__)

_ASKED = (
    "block_size",
    "offset_checker",
    "ping",
    "workers",
)
"""`kafka_lag` is not among them: it is another view of the rows of `offset_checker`, and asked once they cannot
disagree."""
_SELDOM_SECONDS = 5.0
"""Every worker knows every partition of its topics, which is the most that any of them tells, and changes least; and
who leads and who has what changes with a rebalance. For so long what they told is told again, with its age, if all have
answered and nothing shows that it may be another by now."""

_FEW_PARTITIONS = 100
"""The work on a picture of so many takes about 3 ms."""
_ANY_AGE = Freshness(0.0, 0.0, inf, None)
"""Of what is kept for some collections: how fresh it is, is judged at each."""
P = ParamSpec("P")
T = TypeVar("T")


class Collector:
    """Belongs to one event loop; `latest` may be read from any thread. `prepare` is given each picture on a thread
    before it becomes the last one, for what can be made ready before it is asked for."""

    def __init__(
        self,
        config: Config,
        members: Members,
        cluster: Cluster,
        supervisor: Supervisor,
        feed: EventFeed,
        rpc: Callable[[], Mapping[str, RpcFigures]],
        prepare: Callable[[FleetSnapshot], None] = lambda _: None,
        orders: Callable[[], Mapping[tuple[str, str], int]] = dict,
        http_refused: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._config = config
        self._feed = feed
        self._rpc = rpc
        self._prepare = prepare
        self._orders = orders
        self._http_refused = http_refused
        self._changes = Changes(started_at=time.time())
        rules = config.status
        self._assessor = Assessor(Rules(rules.window_seconds, rules.hold_seconds, rules.batch_limit_seconds))
        self._memory_limit = size_bytes(config.workers.memory_soft) or size_bytes(config.workers.memory_hard)
        self._sequence = 0
        self._members = members
        self._cluster = cluster
        self._supervisor = supervisor
        self._kept: dict[str, _Kept] = {}
        self._agents_success: float | None = None
        self._latest: FleetSnapshot | None = None

    def latest(self) -> FleetSnapshot | None:
        """The last picture; None before the first."""
        return self._latest

    def partitions(self, topic: str) -> frozenset[int]:
        """Of a topic, as in the last picture; empty before the first."""
        rows = () if self._latest is None else self._latest.partitions
        return frozenset(row.partition for row in rows if row.topic == topic)

    async def run(self) -> None:
        """Collects every `collect.interval_seconds` until cancelled. Where a collection takes longer than half of that,
        as of many thousand partitions, it rests for as long as it took: it is not all that a master has to do."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            snapshot = await self._told(await self.collect())
            await self._aside(self._prepare, snapshot)
            self._latest = snapshot
            self._feed.collected()
            took = loop.time() - started
            await asyncio.sleep(max(self._config.collect.interval_seconds - took, took))

    def sparkline(self, topic: str, partition: int) -> list[int | None]:
        """The lag of the last 15 minutes in steps of 15 s, oldest first; may be asked on any thread."""
        return self._assessor.sparkline(topic, partition)

    async def _aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On a thread, for with thousands of partitions it takes longer than a loop should be held. Of few, as the last
        picture has them, it is done here: to hand it over would cost more than to do it."""
        latest = self._latest
        if latest is not None and len(latest.partitions) <= _FEW_PARTITIONS:
            return work(*args, **kwargs)
        return await asyncio.to_thread(work, *args, **kwargs)

    async def _told(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """With the events that this picture adds, which are told now."""
        self._feed.tell(await self._aside(self._changes.between, self._latest, snapshot))
        return replace(snapshot, events_total=self._feed.totals())

    async def collect(self) -> FleetSnapshot:
        """One picture, within about `collect.timeout_seconds`.

        Raises:
            PathError: run_dir cannot be read any more.
        """
        started = asyncio.get_running_loop().time()
        timeout = self._config.collect.timeout_seconds
        sockets = await self._members.sockets()
        brokers = asyncio.ensure_future(self._cluster.refresh(timeout))
        outcomes = await asyncio.gather(
            *(self._members.ask(self._members.concerned(sockets, rpc), rpc, {}, started + timeout) for rpc in _ASKED),
        )
        by_rpc = dict(zip(_ASKED, outcomes, strict=True))
        # As of the question, for one that is silent holds up what we know of the others.
        self._supervisor.heard(_heartbeats(by_rpc["ping"]), started)
        readable = await self._aside(lambda: {rpc: usable(rpc, outcome) for rpc, outcome in by_rpc.items()})
        seldom = await self._asked_seldom(sockets, readable, started + timeout)
        await brokers
        if not by_rpc["ping"].failed:
            self._agents_success = time.time()
        figures = await self._aside(self._cluster.figures)
        freshness = self._cluster.freshness()
        taken_at, taken_at_unix, statuses = time.monotonic(), time.time(), self._supervisor.status()
        digested = await self._aside(self._digest, readable, figures, freshness, statuses, taken_at, taken_at_unix)
        self._sequence += 1
        return FleetSnapshot(
            cluster=self._config.kafka.cluster,
            group=self._config.kafka.group,
            taken_at=taken_at,
            collect_seconds=asyncio.get_running_loop().time() - started,
            commands={**digested.commands, **{rpc: with_gaps(rpc, each, freshness) for rpc, each in seldom.items()}},
            partitions=digested.partitions,
            workers=statuses,
            resident_bytes=await self._supervisor.resident_bytes(),
            last_success={
                **({} if self._agents_success is None else {"agents": self._agents_success}),
                **self._cluster.last_success,
            },
            assessments=digested.assessments,
            group_assessment=digested.group_assessment,
            brokers=freshness,
            broker_group=None if figures is None else figures.group,
            rpc=self._rpc(),
            orders_total=self._orders(),
            http_refused_total=self._http_refused(),
            memory_limit_bytes=dict.fromkeys(
                (status.name for status in statuses if self._memory_limit is not None), self._memory_limit or 0
            ),
            sequence=self._sequence,
            taken_at_unix=taken_at_unix,
        )

    async def _asked_seldom(
        self, sockets: Mapping[str, Path], readable: Mapping[str, FanOut], deadline: float
    ) -> dict[str, Reduced]:
        processes = frozenset((answer.sender, str(answer.result.get("pid"))) for answer in readable["ping"].answers)
        standing = await self._aside(_standing, readable["offset_checker"])
        shown = {
            "member_leader": (processes, standing),
            "metadata_brokers": processes,
            "metadata_topics": processes,
        }
        now = time.monotonic()
        old = [rpc for rpc, by in shown.items() if rpc not in self._kept or not self._kept[rpc].holds(by, now)]
        if old:
            concerned = [self._members.concerned(sockets, rpc) for rpc in old]
            outcomes = await asyncio.gather(
                *(self._members.ask(of, rpc, {}, deadline) for rpc, of in zip(old, concerned, strict=True))
            )
            told = await self._aside(
                lambda: [
                    reduced(rpc, usable(rpc, outcome), None, _ANY_AGE)
                    for rpc, outcome in zip(old, outcomes, strict=True)
                ]
            )
            self._kept |= {rpc: _Kept(each, shown[rpc], now) for rpc, each in zip(old, told, strict=True)}
        return {rpc: self._kept[rpc].told_at(now) for rpc in shown}

    def _digest(
        self,
        readable: Mapping[str, FanOut],
        figures: ClusterFigures | None,
        freshness: Freshness,
        statuses: Sequence[WorkerStatus],
        now: float,
        now_unix: float,
    ) -> _Digested:
        of_offsets = readable["offset_checker"]
        partitions = tuple(partition_rows(of_offsets.answers, figures))
        commands = {rpc: reduced(rpc, readable[rpc], figures, freshness) for rpc in readable if rpc != "offset_checker"}
        for rpc in ("offset_checker", "kafka_lag"):
            commands[rpc] = of_partitions(rpc, partitions, of_offsets, freshness)
        commands["workers"] = with_supervisor(commands["workers"], statuses)
        owner_of = owners(commands["workers"].result["rows"], statuses, self._config.workers.trigger_seconds)
        assessments = self._assessor.assess(partitions, owner_of, now, now_unix)
        return _Digested(commands, partitions, assessments, of_group(partitions, assessments))


def _heartbeats(ping: FanOut) -> dict[str, Heartbeat]:
    beats = {answer.sender: heartbeat(answer.result) for answer in ping.answers}
    return {sender: beat for sender, beat in beats.items() if beat is not None}


def _standing(offsets: FanOut) -> frozenset[tuple[str, int | None, str, int]]:
    """Who has which partitions, since which generation: what `member_leader` tells changes with that alone."""
    return frozenset(
        (answer.sender, row.get("generation"), row["topic"], row["partition"])
        for answer in offsets.answers
        for row in answer.result.get("rows") or ()
    )


class _Kept(NamedTuple):
    """What is not asked for every picture."""

    told: Reduced
    shown_by: object
    """What would show that it has changed."""
    asked_at: float

    def holds(self, shown_by: object, now: float) -> bool:
        return self._is_whole and self.shown_by == shown_by and now - self.asked_at < _SELDOM_SECONDS

    def told_at(self, now: float) -> Reduced:
        age = self.told.age_seconds
        return replace(self.told, age_seconds=None if age is None else age + now - self.asked_at)

    @property
    def _is_whole(self) -> bool:
        """A member knows its generation a little sooner than its leader."""
        result = self.told.result
        return self.told.complete and ("leader" not in result or result["leader"] is not None)


class _Digested(NamedTuple):
    commands: dict[str, Reduced]
    partitions: tuple[PartitionRow, ...]
    assessments: tuple[Assessment, ...]
    group_assessment: Assessment
