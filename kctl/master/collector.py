"""Takes the fleet's snapshots: asks all agents and brokers at once, under one deadline. HTTP requests and scrapes read
the last snapshot. If an agent or broker fails, the snapshot has the error and all other answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from msgspec import Raw

from kctl.config.sections import Config
from kctl.groups.broker_cache import BrokerCache
from kctl.groups.snapshot import Clusters, GroupSnapshot
from kctl.master.advising import FleetAdviser
from kctl.master.events import Changes, EventFeed
from kctl.master.members import Members
from kctl.master.owners import is_handling, owners, read_elsewhere
from kctl.master.reduction import (
    BLOCK_SIZE,
    COMMANDS,
    MEMBER_LEADER,
    OFFSET_CHECKER,
    PING,
    STALE_SECONDS,
    WORKERS,
    CachedCommand,
    ReducedCommand,
    reduced,
    with_gaps,
    with_supervisor,
)
from kctl.master.snapshot import FleetSnapshot, RpcStats
from kctl.master.supervisor import Supervisor
from kctl.master.verdict import judge
from kctl.reduce.base import BrokerSnapshot, Freshness
from kctl.rows.columns import Bools, Names, Partition, PartitionColumns, Rows
from kctl.rows.hosts import HostsAnswer
from kctl.rows.workers import WorkerRow
from kctl.rpc.fan_out import FanOut
from kctl.status import Assessment, Assessor, Status, StatusRules, allowed_lag
from kctl.status.assessments import Assessments, judged_lag_seconds, longest_lag_seconds, of_groups
from kctl.status.owners import Owners
from kctl.status.unhandled import UnhandledTrend, limit_seconds, older, stored_seconds
from kctl.status.words import NUMBERS
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import PartitionsReply
from kctl_agent.replies.questions import QUESTIONS
from kctl_agent.replies.workers import PingReply

log = logging.getLogger(__name__)

_ASKED: tuple[ReducedCommand[Any, Any], ...] = (BLOCK_SIZE, OFFSET_CHECKER, PING, WORKERS)
"""The commands of each collection, in the order of `_Replies`. `kafka_lag` is derived from `offset_checker`, so that
the two cannot disagree."""
_KEPT = tuple(
    name
    for name, each in QUESTIONS.items()
    if each.path and name not in (MEMBER_LEADER.name, *(of.name for of in _ASKED))
)
_CACHED_SECONDS = 5.0
"""How long to reuse complete results that show no sign of change: topic metadata are the largest replies."""

_FEW_PARTITIONS = 100
"""Up to this many partitions, a snapshot is processed on the event loop, in about 3 ms."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False, repr=False)
class Collector:
    """Takes the fleet's snapshots. Belongs to one event loop, but any thread may read `latest`."""

    _config: Config
    _members: Members
    _broker_cache: BrokerCache
    _supervisor: Supervisor
    _feed: EventFeed
    _rpc: Callable[[], Mapping[str, RpcStats]]
    _: KW_ONLY
    operations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    http_refused: Mapping[str, int] = field(default_factory=dict)
    groups: Callable[[], Clusters] = lambda: Clusters(())
    hosts: Callable[[], HostsAnswer] | None = None

    def __post_init__(self) -> None:
        config = self._config
        self.prepare: list[Callable[[FleetSnapshot], None]] = []
        """Functions that get every snapshot, on a thread, before it becomes the latest."""
        self._changes = Changes(started_at=time.time())
        rules = config.status
        allowed = allowed_lag(rules.allowed_lag, config.kafka.group)
        blind = max(2 * STALE_SECONDS, 3 * config.collect.interval_seconds + config.collect.timeout_seconds)
        measures = StatusRules(rules.window_seconds, rules.hold_seconds, rules.batch_limit_seconds, blind)
        self._assessor = Assessor(measures, lambda _: allowed)
        self._unhandled = UnhandledTrend(rules.hold_seconds)
        self._adviser = FleetAdviser(config)
        self._transactions: dict[Partition, tuple[int, float]] = {}
        """Log ends that an open transaction keeps in place, and since when."""
        self._sequence = 0
        self._leader = CachedCommand(MEMBER_LEADER, lambda members: members.leader is not None)
        """A member knows its generation slightly before its leader."""
        self._kept = [CachedCommand(COMMANDS[name]) for name in _KEPT]
        self._agents_success: float | None = None
        self._latest: FleetSnapshot | None = None

    def latest(self) -> FleetSnapshot | None:
        return self._latest

    def partitions(self, topic: str) -> frozenset[int]:
        names = [] if self._latest is None else self._latest.offset_checker.result.names.keys
        return frozenset(number for name, number in names if name == topic)

    async def run(self) -> None:
        """Collects every `collect.interval_seconds`. Pauses at least as long as the collection took, to leave time for
        the master's other work. While an agent or broker has a problem, always pauses for the whole interval."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            snapshot = await self.collect()
            self._feed.publish(await self._aside(self._changes.between, self._latest, snapshot))
            snapshot = replace(snapshot, events_total=self._feed.totals())
            for prepare in self.prepare:
                await self._aside(prepare, snapshot)
            self._latest = snapshot
            self._feed.collected()
            is_waited_for = snapshot.ping.failed or self._broker_cache.error
            took = 0.0 if is_waited_for else loop.time() - started  # other work was done while it waited
            await asyncio.sleep(max(self._config.collect.interval_seconds - took, took))

    async def _aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        latest = self._latest
        if latest is not None and not latest.clusters and len(latest.partitions) <= _FEW_PARTITIONS:
            return work(*args, **kwargs)
        return await asyncio.to_thread(work, *args, **kwargs)

    async def collect(self) -> FleetSnapshot:
        """Takes one snapshot within about `collect.timeout_seconds`. Raises PathError."""
        started = asyncio.get_running_loop().time()
        timeout = self._config.collect.timeout_seconds
        sockets = await self._members.sockets()
        brokers = asyncio.ensure_future(self._broker_cache.refresh(timeout))
        outcomes = await asyncio.gather(*(self._ask(sockets, each.name, started + timeout) for each in _ASKED))
        answered, is_held_up = asyncio.get_running_loop().time(), not brokers.done()
        replies = await self._aside(_decoded, *outcomes)
        # Heartbeats have the time of the question, because a silent agent delays the answers of the others.
        self._supervisor.on_heartbeats({each.sender: each.result for each in replies.ping.answers}, started)
        await self._refresh_cached(sockets, replies, started + timeout)
        await brokers
        if not replies.ping.failed:
            self._agents_success = time.time()
        of_brokers = await self._aside(self._broker_cache.snapshot)
        freshness = self._broker_cache.freshness()
        self._sequence += 1
        begun = self._begun(of_brokers, freshness)
        if is_held_up:  # by silent brokers, so every offset in the snapshot is older by that time
            replies = replies.with_offsets_kept(asyncio.get_running_loop().time() - answered)
        digested = await self._aside(self._digested, begun, replies, of_brokers, freshness)
        took = asyncio.get_running_loop().time() - started
        before = self._latest
        since, known = ({}, started) if before is None else (before.since, before.taken_at)
        snapshot = replace(
            digested,
            collect_seconds=took,
            resident_bytes=await self._supervisor.resident_bytes(),
            since={key: since.get(key, known) for key in _lasting(replies)},
        )
        advice = await self._aside(self._adviser.seen, snapshot)
        verdict = await self._aside(judge, snapshot, None if before is None else before.verdict)
        return replace(snapshot, verdict=verdict, advice=advice)

    def _begun(self, of_brokers: BrokerSnapshot, freshness: Freshness) -> FleetSnapshot:
        taken_at = time.monotonic()
        return FleetSnapshot(
            cluster=self._config.kafka.cluster,
            group=self._config.kafka.group,
            taken_at=taken_at,
            taken_at_unix=time.time(),
            collect_seconds=0.0,
            member_leader=with_gaps(MEMBER_LEADER.name, self._leader.at(taken_at), freshness),
            kept={each.command.name: with_gaps(each.command.name, each.at(taken_at), freshness) for each in self._kept},
            supervised=self._supervisor.status(),
            resident_bytes={},
            last_success={
                **({} if self._agents_success is None else {"agents": self._agents_success}),
                **self._broker_cache.last_success,
            },
            brokers=freshness,
            broker_group=of_brokers.group,
            rpc=self._rpc(),
            operations_total=dict(self.operations),
            http_refused_total=dict(self.http_refused),
            memory_limit_bytes=self._supervisor.memory_limits(),
            sequence=self._sequence,
            clusters=self.groups().clusters,
            hosts=None if self.hosts is None else self.hosts(),
            has_own_storage=self.hosts is not None and self._config.storage.kind.is_file,
        )

    def _ask(self, sockets: Mapping[str, Path], rpc: str, deadline: float) -> Awaitable[FanOut[Raw]]:
        return self._members.ask(self._members.concerned(sockets, rpc), rpc, {}, deadline)

    async def _refresh_cached(self, sockets: Mapping[str, Path], replies: _Replies, deadline: float) -> None:
        processes = frozenset((answer.sender, answer.result.pid) for answer in replies.ping.answers)
        assigned = await self._aside(_assigned, replies.offset_checker)
        settling = self._sequence if self._broker_cache.freshness().are_just_back else None
        shown: dict[CachedCommand[Any, Any], object] = {
            self._leader: (processes, assigned),  # the leader's reply is the same while no partition changes its owner
            # When brokers fail or return, leaders and replicas change.
            **dict.fromkeys(self._kept, (processes, self._broker_cache.error is None, settling)),
        }
        now = time.monotonic()
        due = [cached for cached, shown_by in shown.items() if cached.is_due(shown_by, now, _CACHED_SECONDS)]
        if due:
            outcomes = await asyncio.gather(*(self._ask(sockets, cached.command.name, deadline) for cached in due))
            for cached, outcome in zip(due, outcomes, strict=True):
                await self._aside(cached.keep, outcome, shown[cached], now)

    def _digested(
        self, begun: FleetSnapshot, replies: _Replies, of_brokers: BrokerSnapshot, freshness: Freshness
    ) -> FleetSnapshot:
        offsets = reduced(OFFSET_CHECKER, replies.offset_checker, of_brokers, freshness)
        partitions = offsets.result
        workers = with_supervisor(reduced(WORKERS, replies.workers, of_brokers, freshness), begun.supervised)
        members = None if of_brokers.group is None else of_brokers.group.members
        kafka, trigger_seconds = self._config.kafka, self._config.workers.trigger_seconds
        others = read_elsewhere(of_brokers, begun.hosts, begun.taken_at_unix, kafka.session_timeout_seconds)
        open_seconds = self._open_transactions(partitions, begun.taken_at)
        owner_of = owners(workers.result.rows, begun.supervised, trigger_seconds, members, others, open_seconds)
        workers_of, behind = partitions.listed("worker", None), partitions.listed("behind_transaction", 0)
        found = Owners.of(map(owner_of, partitions.names.keys, workers_of, behind))
        every = self._assessor.assess(partitions, found, begun.taken_at_unix)
        assessments, names = every[: partitions.names.begins[1]], partitions.names
        is_unowned = _unowned(partitions, assessments) & (begun.hosts is not None)
        unowned, owned = np.flatnonzero(is_unowned), np.flatnonzero(~is_unowned)
        of_each = of_groups(every, names.begins, names.name)
        of_owned = _of_some(names, assessments, owned) if len(unowned) and len(owned) else of_each[0]
        block_size = reduced(BLOCK_SIZE, replies.block_size, of_brokers, freshness)
        stored = stored_seconds(block_size.result)
        unpaused, cycle = judged_lag_seconds(assessments)
        limit = limit_seconds(self._config.status.oldest_limit, cycle)
        is_stale = bool((partitions.age_seconds[: names.begins[1]] > freshness.stale_after_seconds).any())
        lags, ages = partitions.lags(), partitions.oldest()
        oldest = None if is_stale else older(longest_lag_seconds(assessments), stored)
        judged = None if is_stale else older(unpaused, stored if is_handling(workers.result.rows) else 0.0)
        return replace(
            begun,
            offset_checker=offsets,
            kafka_lag=lags[0],
            block_size=block_size,
            unhandled=self._unhandled.seen(judged, limit, cycle, begun.taken_at),
            ping=reduced(PING, replies.ping, of_brokers, freshness),
            workers=workers,
            assessments=every,
            group_assessment=replace(of_owned, oldest_unhandled_seconds=oldest),
            unowned=_of_some(names, assessments, unowned) if len(unowned) else None,
            attached=tuple(
                GroupSnapshot(
                    *(begun.cluster, names.groups[number], partitions.of_group(number)),
                    *(every[names.begins[number] : names.begins[number + 1]], of_each[number], lags[number]),
                    age_seconds=ages[number],
                )
                for number in range(1, len(names.groups))
            ),
        )

    def _open_transactions(self, partitions: PartitionColumns, now: float) -> dict[Partition, float]:
        behind = partitions.listed("behind_transaction", 0)
        all_ends = zip(partitions.names.keys, partitions.end.tolist(), behind, strict=True)
        before, ends = self._transactions, {key: (end, now) for key, end, messages in all_ends if messages > 0}
        self._transactions = {k: old if (old := before.get(k, new))[0] == new[0] else new for k, new in ends.items()}
        return {key: now - since for key, (_, since) in self._transactions.items()}


class _Replies(NamedTuple):
    block_size: FanOut[StorageReply]
    offset_checker: FanOut[PartitionsReply]
    ping: FanOut[PingReply]
    workers: FanOut[WorkerRow]

    def with_offsets_kept(self, seconds: float) -> _Replies:
        offsets = self.offset_checker
        return self._replace(offset_checker=replace(offsets, answers=[each.kept(seconds) for each in offsets.answers]))


def _decoded(*outcomes: FanOut[Raw]) -> _Replies:
    return _Replies._make(each.decoded(outcome) for each, outcome in zip(_ASKED, outcomes, strict=True))


def _of_some(names: Names, assessments: Assessments, rows: Rows) -> Assessment:
    return of_groups(assessments.chosen(rows), [0, len(rows)], lambda number: names.name(rows[number]))[0]


def _unowned(partitions: PartitionColumns, assessments: Assessments) -> Bools:
    is_elsewhere = assessments.status == NUMBERS[Status.ELSEWHERE]
    is_nobodys = np.array(
        [worker is None for worker in partitions.listed("worker", None)[: len(assessments)]], np.bool_
    )
    found: Bools = is_nobodys & ~is_elsewhere
    return found


def _lasting(replies: _Replies) -> Iterator[tuple[str, str]]:
    if any(answer.result.full for answer in replies.block_size.answers):
        yield "storage", "full"
    yield from ((failed.sender, "silent") for failed in replies.ping.failed)
    for answer in replies.ping.answers:
        if answer.result.waiting_for is not None:
            yield answer.sender, answer.result.waiting_for.what


def _assigned(offsets: FanOut[PartitionsReply]) -> frozenset[tuple[str, int | None, str, int]]:
    return frozenset(
        (answer.sender, row.generation, row.topic, row.partition)
        for answer in offsets.answers
        for row in answer.result.rows
    )
