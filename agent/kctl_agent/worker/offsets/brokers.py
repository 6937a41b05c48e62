"""Requests to brokers for log ends, the group's offsets and metadata. Two threads share one admin client.

The main thread calls `Brokers`, for example when a query starts, and waits for answers. `BrokerWatcher` asks every
second in a thread. Other threads read the last answers without waiting. If a broker hangs, these answers grow old.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from kctl_agent.attached.partition_offsets import QUESTION_SECONDS, answered_offsets
from kctl_agent.kafka.clients import forget_coordinators, opened
from kctl_agent.kafka.errors import describe, name_of, reason
from kctl_agent.process import deadline
from kctl_agent.process.tracebacks import first_line
from kctl_agent.replies.partitions import BrokerMetadata, PartitionMetadata
from kctl_agent.worker.offsets.commit_metadata import LogSeen, divergence, log_seen, parse
from kctl_agent.worker.offsets.positions import Found
from kctl_agent.worker.settings import KafkaSettings

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5000
METADATA_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Topics:
    """Topic metadata. `ids` has topic ids (KIP-516), if brokers know them. Topics in `errors` have no rows or ids."""

    rows: tuple[PartitionMetadata, ...]
    ids: dict[str, str]
    errors: dict[str, type[KafkaError]]

    def ids_since(self, before: Mapping[str, str]) -> dict[str, str]:
        gone = UnknownTopicOrPartitionError
        kept = {topic: id_ for topic, id_ in before.items() if self.errors.get(topic, gone) is not gone}
        return kept | self.ids

    def undescribed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Returns the error of each partition whose topic has an error. Raises KafkaError if all topics have errors."""
        errors = {tp: self.errors[tp.topic] for tp in partitions if tp.topic in self.errors}
        if errors and len(errors) == len(partitions):
            tp = min(errors)
            raise errors[tp](f"topic {tp.topic}")
        return {tp: f"topic {tp.topic} cannot be described ({name_of(error)})" for tp, error in errors.items()}


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The brokers' last answers. `taken_at` is in monotonic seconds, or None before the first answer."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    taken_at: float | None = None
    brokers: tuple[BrokerMetadata, ...] | None = None
    topics: tuple[PartitionMetadata, ...] | None = None
    topic_ids: dict[str, str] = field(default_factory=dict)
    logs: dict[TopicPartition, LogSeen] = field(default_factory=dict)
    unanswered_since: dict[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    logs: dict[TopicPartition, LogSeen] = field(default_factory=dict)
    unanswered: dict[TopicPartition, str] = field(default_factory=dict)


class Brokers:
    """Requests to the cluster. They block, and are thread-safe."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        self._settings = settings
        self._cluster_id: str | None = None
        self._client = opened(  # thread-safe, because it runs one I/O thread
            KafkaAdminClient,
            bootstrap_servers=settings.bootstrap_servers,
            client_id=f"{client_id}-admin",
            bootstrap_timeout_ms=10_000,  # the client reports an outage after this, and is retried
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            reconnect_backoff_max_ms=2000,
            **settings.security.client_settings(),
        )

    @property
    def _admin(self) -> Any:
        if not deadline.allows(QUESTION_SECONDS):
            raise KafkaTimeoutError("no time is left in this turn")
        return self._client

    def close(self) -> None:
        self._client.close()

    def describe(self, error: KafkaError, what: str) -> str:
        return describe(error, what, self._settings.bootstrap_servers)

    def bounds(self, partitions: Collection[TopicPartition]) -> Bounds:
        """Returns the start and end of each log. With `read_committed`, the end is the last stable offset. Partitions
        whose leader does not answer are in `unanswered`. Raises KafkaError if no leader answers."""
        try:
            starts, unstarted = answered_offsets(self._admin, partitions, OffsetSpec.EARLIEST)
            isolation = self._settings.isolation_level
            ends, unended = answered_offsets(self._admin, starts, OffsetSpec.LATEST, isolation)
        except KafkaError:
            self._look_for_brokers()
            raise
        unanswered = unstarted | unended
        if unanswered:
            self._look_for_brokers()
        return Bounds(
            {tp: at.offset for tp, at in starts.items() if tp in ends},
            {tp: at.offset for tp, at in ends.items()},
            {tp: LogSeen(at.leader_epoch, at.offset) for tp, at in ends.items() if at.leader_epoch is not None},
            unanswered,
        )

    def found(
        self, partitions: Collection[TopicPartition], known: Mapping[TopicPartition, LogSeen] | None = None
    ) -> tuple[dict[TopicPartition, Found], dict[TopicPartition, str]]:
        """Returns the facts that decide where reading starts, and why a partition has no answer. To notice a
        truncation, compares each log with `known`, or else with the committed note or epoch. Raises KafkaError."""
        group = self._settings.group
        try:
            offsets = self._admin.list_group_offsets({group: list(partitions)})[group]
        except KafkaError:
            forget_coordinators(self._admin)
            self._look_for_brokers()
            raise
        committed = {tp: at for tp, at in offsets.items() if at.offset >= 0}
        notes = {tp: parse(at.metadata) for tp, at in committed.items()}
        topics = self.topics()
        undescribed = topics.undescribed(partitions)
        bounds = self.bounds([tp for tp in partitions if tp not in undescribed])
        before = {tp: log_seen(notes[tp], at.offset, at.leader_epoch) for tp, at in committed.items()}
        diverged, unknown = self.divergences_of_each(before | dict(known or {}), bounds.logs)
        unanswered = undescribed | bounds.unanswered | unknown
        found: dict[TopicPartition, Found] = {}
        for tp in set(partitions) - unanswered.keys():
            partition = tp.topic, tp.partition, topics.ids.get(tp.topic)
            at = committed[tp].offset if tp in committed else None, bounds.starts[tp], bounds.ends[tp]
            found[tp] = Found(*partition, *at, notes.get(tp), bounds.logs.get(tp), diverged.get(tp))
        return found, unanswered

    def divergences(
        self, before: Mapping[TopicPartition, LogSeen | None], now: Mapping[TopicPartition, LogSeen]
    ) -> dict[TopicPartition, int]:
        """Returns the first offset at which each truncated log differs from `before`. Asks brokers only about logs with
        a newer leader epoch. Raises KafkaError if a retry may succeed, and only warns about other errors."""
        moved = {
            tp: (seen, now[tp]) for tp, seen in before.items() if seen and tp in now and now[tp].epoch > seen.epoch
        }
        ends = self._ends_of_epochs(moved) if moved else {}
        found = {tp: divergence(seen, ends.get(tp)) for tp, (seen, _) in moved.items()}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def divergences_of_each(
        self, before: Mapping[TopicPartition, LogSeen | None], now: Mapping[TopicPartition, LogSeen]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Like `divergences`, but an error affects only one partition. Also returns why a log was not compared. Raises
        KafkaError if no log was compared."""
        try:
            return self.divergences(before, now), {}
        except KafkaError as error:
            first = error
        diverged, unknown = dict[TopicPartition, int](), dict[TopicPartition, str]()
        for tp in now:
            try:
                diverged |= self.divergences({tp: before.get(tp)}, {tp: now[tp]})
            except KafkaError as error:
                unknown[tp] = f"its leader does not answer which log it has ({reason(error)})"
        if len(unknown) == len(now):
            raise first
        return diverged, unknown

    def _ends_of_epochs(self, asked: Mapping[TopicPartition, tuple[LogSeen, LogSeen]]) -> dict[TopicPartition, int]:
        admin, ends = self._admin, dict[TopicPartition, int]()

        async def ask() -> None:
            led = await admin._async_get_leader_for_partitions(asked)  # noqa: SLF001
            for leader, partitions in led.items():
                response = await admin._manager.send(_of_epochs(partitions, asked), node_id=leader)  # noqa: SLF001
                for topic in response.topics:
                    for each in topic.partitions:
                        tp, error = TopicPartition(topic.topic, each.partition), for_code(each.error_code)
                        if error is NoError:
                            ends[tp] = each.end_offset
                        elif error.retriable:
                            raise error(f"{tp.topic}-{tp.partition}")
                        else:
                            log.warning("a truncation of %s-%d would not be noticed: %s", *tp, name_of(error))

        try:
            admin._manager.run(ask)  # noqa: SLF001
        except UnsupportedVersionError as error:
            log.warning(
                "a truncation would not be noticed, because the broker is too old to report it: %s", reason(error)
            )
        return ends

    def _look_for_brokers(self) -> None:
        # Without this, kafka-python's admin client may miss a recovered broker for minutes.
        self._admin._manager.cluster.request_update()  # noqa: SLF001 - it offers no public way

    def offset_at(self, partition: TopicPartition, milliseconds: int) -> int | None:
        found = self._admin.list_partition_offsets({partition: milliseconds})
        offset: int = found[partition].offset
        return offset if offset >= 0 else None

    def cluster_id(self) -> str | None:
        if self._cluster_id is None:
            self._cluster_id = self._admin.describe_cluster()["cluster_id"]
        return self._cluster_id

    def partitions_of(self, topics: Collection[str]) -> set[TopicPartition]:
        return {TopicPartition(row.topic, row.partition) for row in self.topics().rows if row.topic in topics}

    def topics(self) -> Topics:
        rows: list[PartitionMetadata] = []
        ids: dict[str, str] = {}
        errors: dict[str, type[KafkaError]] = {}
        for topic in self._admin.describe_topics(list(self._settings.topics)):
            if topic["error_code"]:
                errors[topic["name"]] = for_code(topic["error_code"])
                continue
            if topic.get("topic_id") is not None:
                ids[topic["name"]] = str(topic["topic_id"])
            rows += [_topic_partition(topic["name"], partition) for partition in topic["partitions"]]
        return Topics(tuple(sorted(rows, key=lambda row: (row.topic, row.partition))), ids, errors)

    def brokers(self) -> tuple[BrokerMetadata, ...]:
        cluster = self._admin.describe_cluster()
        controller = self._controller(cluster["controller_id"])
        return tuple(
            BrokerMetadata(b["broker_id"], b["host"], b["port"], b["rack"], b["broker_id"] == controller)
            for b in cluster["brokers"]
        )

    def _controller(self, reported: int) -> int | None:
        try:  # with KRaft, DescribeCluster names any broker
            quorum = self._admin.describe_metadata_quorum()
        except UnsupportedVersionError:
            return reported
        except ClusterAuthorizationFailedError:
            return None
        leaders: list[int] = [each["leader_id"] for topic in quorum["topics"] for each in topic["partitions"]]
        return next((leader for leader in leaders if leader >= 0), None)


def _of_epochs(
    partitions: Collection[TopicPartition], asked: Mapping[TopicPartition, tuple[LogSeen, LogSeen]]
) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[Any]] = {}
    for tp in partitions:
        before, now = asked[tp]
        # A broker rejects the request unless it leads in `current_leader_epoch`.
        topics.setdefault(tp.topic, []).append(
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=now.epoch, leader_epoch=before.epoch
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.items()))


def _topic_partition(topic: str, partition: dict[str, Any]) -> PartitionMetadata:
    leader = partition["leader_id"]
    nodes = (tuple(partition[name]) for name in ("replica_nodes", "isr_nodes", "offline_replicas"))
    return PartitionMetadata(topic, partition["partition_index"], leader if leader >= 0 else None, *nodes)


class BrokerWatcher(threading.Thread):
    """Asks brokers every `every_seconds` for topics, and for first and end offsets of the `watched()` partitions.
    Replaces `view` as a whole with the answers. After each attempt, calls `report` with None or why it failed."""

    def __init__(
        self,
        brokers: Brokers,
        watched: Callable[[], Collection[TopicPartition]],
        report: Callable[[str | None], None] = lambda _: None,
        every_seconds: float = 1.0,
    ) -> None:
        super().__init__(name="kctl-brokers", daemon=True)
        self.view = BrokerView()
        self._brokers = brokers
        self._watched = watched
        self._every_seconds = every_seconds
        self._stop_asked = threading.Event()
        self._report = report
        self._metadata_at = float("-inf")

    def stop(self) -> None:
        """Makes the thread end. Does not wait for it, because a request may hang until its time-out."""
        self._stop_asked.set()

    def run(self) -> None:
        while not self._stop_asked.wait(self._every_seconds):
            why = self._why_not_polled()
            if not self._stop_asked.is_set():  # a client that was closed may raise anything
                self._report(why)

    def _why_not_polled(self) -> str | None:
        try:
            self._poll()
        except KafkaError as error:
            return self._brokers.describe(error, "offsets of partitions grow old")
        except Exception as error:  # a bug must not end the checks of the logs
            log.debug("the brokers' answers cannot be read", exc_info=True)
            return f"offsets of partitions grow old: {type(error).__name__}: {first_line(error)}"
        return None

    def _poll(self) -> None:
        view = self.view
        partitions = set(self._watched())
        now = time.monotonic()
        topics = self._brokers.topics()
        partitions &= {TopicPartition(row.topic, row.partition) for row in topics.rows}
        bounds = self._brokers.bounds(partitions) if partitions else Bounds()
        unanswered_since = {tp: view.unanswered_since.get(tp, now) for tp in bounds.unanswered}
        brokers = view.brokers
        if brokers is None or now - self._metadata_at > METADATA_EVERY_SECONDS:
            brokers = self._brokers.brokers()
            self._metadata_at = now
        ids = topics.ids_since(view.topic_ids)
        self.view = BrokerView(
            bounds.starts, bounds.ends, now, brokers, topics.rows, ids, bounds.logs, unanswered_since
        )
