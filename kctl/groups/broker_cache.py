"""Caches a fleet's group: its committed offsets, log offsets and state.

During an outage, the cache keeps the last offsets, and their ages increase. If the brokers answer a poll only in part,
the cache takes the values that they returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf

from kctl.config.sections import KafkaSection
from kctl.errors import KctlError, TopicMissing
from kctl.groups.known_groups import KnownGroups
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.reduce.base import BrokerSnapshot, Freshness, GroupStats
from kctl.rows.columns import Names, PartitionColumns
from kctl.rows.partitions import ResetPolicy

log = logging.getLogger(__name__)

_BACKOFF_MIN_SECONDS = 0.5
_BACKOFF_MAX_SECONDS = 5.0
_STALE_INTERVALS = 3
_SHORTEST_STALE_SECONDS = 5.0
"""With a shorter limit, a busy machine alone makes offsets older than three intervals."""
_SETTLE_SECONDS = 3.0  # agents need as long, at most, to learn the replicas after the brokers are back
_PARTS = ("committed", "offsets", "group")
_PART_OF = {"groups": "group", "members": "group", "committed": "committed", "offsets": "offsets"}
_PASSING = frozenset(
    {"LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE", "TOPIC_AUTHORIZATION_FAILED"}
)


def _stats(reading: ClusterReading, group: str) -> GroupStats | None:
    listed = reading.groups.get(group)
    return None if listed is None else GroupStats.of(listed.state, reading.members.get(group))


def _errors(reading: ClusterReading, group: str) -> dict[str, str]:
    errors = {_PART_OF[part]: why for part, why in reading.errors.items()}
    if group in reading.unclear:
        why = f"group {group}: its coordinator does not know it, but may have just taken over; kctl waits 30 s"
        errors = {"committed": why, "group": why} | errors
    failed = (f"{t}-{n}: {error}" for (t, n), error in reading.unanswered.items() if error not in _PASSING)
    why = next(failed, "")
    return {"offsets": why} | errors if why else errors


@dataclass(eq=False, repr=False)
class BrokerCache:
    """A cache of a group's offsets for one event loop. Polls the brokers on its own thread. Call `close` at the end."""

    _reader: ClusterReader
    _servers: str
    _name: str
    _clock: Callable[[], float] = time.monotonic
    interval_seconds: float = 1.0  # the time between calls of `refresh`
    reset: ResetPolicy = ResetPolicy.EARLIEST
    """Decides where the group starts in a partition without a commit."""

    def __post_init__(self) -> None:
        self.nothing_known = BrokerSnapshot(PartitionColumns(Names({self._name: ()})), reset=self.reset)
        self._kept_interval_seconds = 0.0
        self._answered_at: float | None = None
        self._complete_at: float | None = None
        self._back_at = -inf
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kctl-brokers")
        self._running: asyncio.Future[None] | None = None
        self._known = KnownGroups(inf, self._name, self.reset)
        self._partitions = self.nothing_known.partitions
        self._group: GroupStats | None = None
        self._assigned = self.nothing_known.assigned
        self._missing_topics: tuple[str, ...] = ()
        self._failures = 0
        self._not_before = 0.0
        self.last_success: dict[str, float] = {}
        """For each part (`committed`, `offsets`, `group`) the Unix seconds of its last success."""
        self.error: str | None = None  # why the last poll failed, in whole or in part

    @classmethod
    def of(
        cls, kafka: KafkaSection, access: ClusterAccess, timeout_seconds: float, interval_seconds: float = 1.0
    ) -> BrokerCache:
        reader = ClusterReader.of_group(access, kafka.group, kafka.topics, kafka.isolation_level, timeout_seconds)
        reset = ResetPolicy(kafka.auto_offset_reset)
        return cls(reader, kafka.bootstrap_servers, kafka.group, interval_seconds=interval_seconds, reset=reset)

    async def check(self) -> None:
        """Polls the brokers once and checks that the topics exist. Raises BrokerUnreachable, WrongProtocol,
        AuthenticationFailed, NotAuthorised or TopicMissing."""
        now = self._clock()
        reading = await asyncio.get_running_loop().run_in_executor(self._thread, self._reader.read)
        self._known.add(reading, now)  # later polls read log starts only with new leaders
        if missing := reading.missing_topics:
            names, is_one = ", ".join(missing), len(missing) == 1
            raise TopicMissing(
                f"{'topic' if is_one else 'topics'} {names} {'does' if is_one else 'do'} not exist on {self._servers}: "
                f"create {'it' if is_one else 'them'} or correct kafka.topics"
            )

    async def refresh(self, timeout_seconds: float) -> None:
        """Polls the brokers. Does nothing while a poll is running, or during the back-off after a failed poll. Waits
        for at most `timeout_seconds`. A longer poll continues in the background."""
        if self._clock() < self._not_before or not (self._running is None or self._running.done()):
            return
        self._running = asyncio.ensure_future(self._poll())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.shield(self._running)

    def snapshot(self) -> BrokerSnapshot:
        """Returns every partition, with the age of its committed or log offsets, whichever are older. Thread-safe."""
        partitions = replace(self._partitions, now=self._clock())
        return BrokerSnapshot(partitions, self._group, self.nothing_known.reset, self._assigned)

    def freshness(self) -> Freshness:
        now, answered_at, complete_at = self._clock(), self._answered_at, self._complete_at
        return Freshness(
            None if answered_at is None else now - answered_at,
            None if complete_at is None else now - complete_at,
            self._stale_after(),
            self.error,
            self._missing_topics,
            now - self._back_at < _SETTLE_SECONDS,
        )

    def _stale_after(self) -> float:
        interval = max(self.interval_seconds, self._kept_interval_seconds)
        return max(_STALE_INTERVALS * interval, _SHORTEST_STALE_SECONDS)

    async def close(self) -> None:
        """Closes the connections after any running poll. If brokers hang, this takes a few request time-outs."""
        if self._running is not None:
            await self._running
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reader.close)
        self._thread.shutdown(wait=False)

    async def _poll(self) -> None:
        now, unix = self._clock(), time.time()  # the time of the request, because no offset may seem newer than it is
        try:
            reading = await asyncio.get_running_loop().run_in_executor(self._thread, self._reader.read)
        except Exception as error:  # a boundary: a failing client library must not stop the master
            if not isinstance(error, KctlError):
                log.exception("action=brokers_failed")
            self._group = None
            self._failed("brokers_away", str(error) or type(error).__name__)
            pause = min(_BACKOFF_MAX_SECONDS, _BACKOFF_MIN_SECONDS * 2.0 ** min(self._failures, 10))
            self._not_before = self._clock() + pause
            return
        self._partitions = await asyncio.get_running_loop().run_in_executor(self._thread, self._merged, reading, now)
        self._group = _stats(reading, self._name)
        self._assigned = reading.assigned.get(self._name, self._assigned)
        self._missing_topics = reading.missing_topics
        if self._answered_at is not None and self._failures == 0:
            self._kept_interval_seconds = min(now - self._answered_at, _BACKOFF_MAX_SECONDS)  # a broker may have hung
        self._answered_at = now
        errors = _errors(reading, self._name)
        self.last_success.update((part, unix) for part in _PARTS if part not in errors)
        if errors:
            self._failed("brokers_incomplete", "; ".join(f"{part}: {why}" for part, why in sorted(errors.items())))
            return
        if self.error is not None:
            log.info("action=brokers_back servers=%s after_failures=%d", self._servers, self._failures)
            if self._complete_at is not None and now - self._complete_at > self._stale_after():
                self._back_at = self._clock()
        self.error, self._failures, self._not_before = None, 0, 0.0
        self._complete_at = now

    def _merged(self, reading: ClusterReading, now: float) -> PartitionColumns:
        self._known.add(reading, now)
        return self._known.partitions(now, lambda _: False)

    def _failed(self, action: str, why: str) -> None:
        if self.error is None:
            log.warning("action=%s servers=%s error=%s", action, self._servers, why)
        self.error = why
        self._failures += 1
