"""Membership in the consumer group. kafka-python joins the group, sends heartbeats and commits offsets.

Spark reads the records, so all partitions are paused in kafka-python. kafka-python awaits the rebalance listener on its
I/O loop. The listener does blocking work in a thread, so that heartbeats continue.
"""

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, ConsumerProtocolAssignment
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaError
from kafka.future import Future

from kctl_agent.errors import BadPayload
from kctl_agent.kafka.clients import opened, take_up_forgotten_join
from kctl_agent.kafka.errors import reason
from kctl_agent.replies.partitions import MemberReply
from kctl_agent.rpc.wire import parse_object
from kctl_agent.worker.consumer_group.commits import PendingCommit, keep_partition_errors, refusal
from kctl_agent.worker.settings import KafkaSettings

ASSIGNORS = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor)


def leader_announcing(
    name: str,
    own_member_id: Callable[[], str],
    owned: Callable[[], Collection[TopicPartition]],
    on_leader: Callable[[int, str | None, dict[str, int]], None],
) -> type[AbstractPartitionAssignor]:
    """Returns a subclass of the assignor `name`, by which the group's leader announces itself to every member.

    The leader writes its member id and the partition counts into the user data of every assignment. Other clients
    ignore this data. kafka-python's I/O thread calls `on_leader(generation, leader, partitions)` at every assignment.
    `leader` is None if the leader is not a kctl worker. `partitions` has the partition count of each topic.

    `owned` returns the partitions that a joining member claims in a cooperative group.
    """

    stock: Any = next(each for each in ASSIGNORS if each.name == name)

    class LeaderAnnouncing(stock):  # type: ignore[misc]
        def assign(self, cluster: Any, members: Any) -> Any:
            topics = sorted({topic for member in members for topic in member.metadata.topics})
            partitions = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
            note = json.dumps({"leader": own_member_id(), "partitions": partitions}).encode()
            shares = super().assign(cluster, members)
            return {
                member: ConsumerProtocolAssignment(share.version, share.assigned_partitions, note)
                for member, share in shares.items()
            }

        def metadata(self, topics: Any) -> Any:
            if name == CooperativeStickyAssignor.name:
                # kafka-python 3.0.12 claims its last assignment even after losing it. The leader would keep these
                # partitions for this member, which never gives them up.
                self.member_assignment = sorted(owned())
            return super().metadata(topics)

        def on_assignment(self, assignment: Any, generation: int) -> None:
            on_leader(generation, *_leader(bytes(assignment.user_data or b"")))
            super().on_assignment(assignment, generation)

    LeaderAnnouncing.name = name
    return LeaderAnnouncing


def _leader(note: bytes) -> tuple[str | None, dict[str, int]]:
    try:
        given = parse_object(note)
        counts = {str(topic): int(count) for topic, count in given.get("partitions", {}).items()}
        if max(counts.values(), default=0) > _MOST_PARTITIONS:
            raise ValueError("no topic has so many partitions")
        return str(given["leader"]), counts
    except (BadPayload, ValueError, KeyError, TypeError, AttributeError):
        return None, {}


log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5000
_MOST_PARTITIONS = 1_000_000  # of a topic in a leader's note, which any member may have written

_UUID_CHARS = len("-00000000-0000-0000-0000-000000000000")

Offsets = Mapping[TopicPartition, int]


class MemberLost(Exception):
    """The session expired, so the group continues without this member. The member joins again."""


class MemberFenced(Exception):
    """Another member joined with this member's `group.instance.id`. If this member joins again, it fences the other."""


class Membership(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Joins the group. Only the main thread calls `poll`, `commit` and `close`. Other methods are thread-safe.

    The callbacks `on_revoked(partitions)` and `on_lost()` run in a new thread. `on_revoked` returns the offsets to
    commit. `note(partition)` returns the metadata for a commit. `note` and `on_committed(offsets)` may run on the I/O
    thread, so they must not block.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        client_id: str,
        on_revoked: Callable[[set[TopicPartition]], Offsets],
        on_lost: Callable[[], None],
        on_committed: Callable[[Offsets], None],
        note: Callable[[TopicPartition], str] = lambda _: "",
    ) -> None:
        self._settings = settings
        self.is_rebalancing = False
        self._given_up: int | None = None
        self._leader: tuple[int, str | None] | None = None
        self.on_revoked = on_revoked
        self.on_lost = on_lost
        self.on_committed = on_committed
        self.note = note
        assignor = leader_announcing(
            settings.assignor,
            own_member_id=lambda: str(self._metadata().member_id),
            owned=lambda: self._consumer.assignment(),
            on_leader=self._on_leader,
        )
        session_ms = int(settings.session_timeout_seconds * 1000)
        self._consumer = opened(
            KafkaConsumer,
            bootstrap_servers=settings.bootstrap_servers,
            group_id=settings.group,
            group_instance_id=settings.group_instance_id,
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset=settings.auto_offset_reset,
            isolation_level=settings.isolation_level,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=session_ms,
            max_poll_interval_ms=int(settings.max_poll_interval_seconds * 1000),
            heartbeat_interval_ms=int(settings.heartbeat_interval_seconds * 1000),
            metadata_max_age_ms=5000,  # how soon the leader notices that a topic has grown
            reconnect_backoff_max_ms=2000,
            allow_auto_create_topics=False,
            **settings.security.client_settings(),
        )
        keep_partition_errors(self._consumer)
        prepare_each_join(self._consumer)
        try:
            for topic in settings.topics:
                self._consumer.partitions_for_topic(topic)  # a leader that knows no partitions assigns nothing at first
        except KafkaError:
            self.close()
            raise
        self._consumer.subscribe(list(settings.topics), listener=self)
        take_in_metadata(self._consumer)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions, or an empty set during a rebalance or outside the group."""
        generation: int = self._metadata().generation_id
        if self.is_rebalancing or generation < 0 or generation == self._given_up:
            return frozenset()
        return frozenset(self._consumer.assignment())

    @property
    def partition_counts(self) -> list[int]:
        return [len(self._consumer.partitions_for_topic(topic)) for topic in self._settings.topics]

    @property
    def info(self) -> MemberReply:
        metadata = self._metadata()
        joined = metadata.generation_id >= 0 and bool(metadata.member_id)
        generation = metadata.generation_id if joined else None
        leader = self._leader[1] if self._leader and self._leader[0] == generation else None
        member_id = metadata.member_id if joined else None
        return MemberReply(
            member_id,
            generation=generation,
            leader=leader,
            is_leader=None if member_id is None or leader is None else self._is_self(leader),
            group=self._settings.group,
            assignor=self._settings.assignor,
        )

    def poll(self, timeout_seconds: float) -> None:
        """Polls the group for up to `timeout_seconds`. Raises MemberFenced, KafkaError."""
        take_up_forgotten_join(self._consumer)
        try:
            self._consumer.poll(timeout_ms=int(timeout_seconds * 1000))
        except FencedInstanceIdError as error:
            raise self._fenced() from error
        if has_given_up_heartbeats(self._consumer):
            raise self._fenced()

    def commit(self, offsets: Offsets, *, is_reset: bool = False) -> dict[TopicPartition, type[KafkaError]]:
        """Commits offsets and returns the error of each rejected partition. If `is_reset`, commits without a note, as
        another client would to reset the group. Raises MemberLost, MemberFenced, KafkaError."""
        commit = self._commit(offsets, (lambda _: "") if is_reset else self.note)
        try:
            self._consumer.commit(commit, timeout_ms=COMMIT_TIMEOUT_MS)
        except FencedInstanceIdError as error:
            raise self._fenced() from error
        except CommitFailedError as error:
            self._given_up = self._metadata().generation_id
            raise MemberLost(str(error)) from error
        return commit.refused

    def close(self) -> None:
        """Revokes all partitions, which commits their offsets, and leaves the group."""
        self._consumer.close(autocommit=False, timeout_ms=10_000)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Runs `on_revoked` and commits the returned offsets before other members get the partitions."""
        self.is_rebalancing = True
        try:
            offsets = await self._in_thread(lambda: self.on_revoked(revoked))
            if offsets:
                commit = self._commit(offsets, self.note)
                # `commit` raises on this loop. `commit_async` may return the future of the coordinator's look-up.
                coordinator = self._consumer._coordinator  # noqa: SLF001 - there is no public way to await a commit
                await coordinator._commit_offsets_sync_async(commit, COMMIT_TIMEOUT_MS)  # noqa: SLF001
                self.on_committed({tp: at for tp, at in offsets.items() if tp not in commit.refused})
                if commit.refused:
                    log.warning("%s", refusal(commit.refused))
        except KafkaError as error:  # the next owner continues at the stored offset
            log.warning("offsets were not committed at the revocation (%s)", reason(error))
        finally:
            self.is_rebalancing = self._is_eager

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._consumer.pause(*assigned)  # otherwise the first poll would return records
        self.is_rebalancing = False
        names = partition_names(self._consumer.assignment())
        log.info("generation %d of the group, assigned: %s", self._metadata().generation_id, names)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:  # noqa: ARG002
        self.is_rebalancing = True
        try:
            await self._in_thread(self.on_lost)
        finally:
            self.is_rebalancing = self._is_eager

    @property
    def _is_eager(self) -> bool:
        return self._settings.assignor != "cooperative-sticky"

    def _metadata(self) -> Any:
        return self._consumer.group_metadata()

    @staticmethod
    def _commit(offsets: Offsets, note: Callable[[TopicPartition], str]) -> PendingCommit:
        # -1: the epoch of the record below the offset is not known, and a newer one may look like a truncation.
        return PendingCommit({tp: OffsetAndMetadata(offset, note(tp), -1) for tp, offset in offsets.items()})

    def _fenced(self) -> MemberFenced:
        return MemberFenced(
            f"another member of the group {self._settings.group} has joined with the group.instance.id "
            f"{self._settings.group_instance_id}; each member needs its own: give fleets of one group different "
            "fleet.name, and restart this worker"
        )

    def _on_leader(self, generation: int, leader: str | None, partitions: Mapping[str, int]) -> None:
        self._leader = (generation, leader)
        if leader not in (None, self._metadata().member_id) and self._is_self(str(leader)):
            watch_metadata(self._consumer, partitions)

    def _is_self(self, leader: str) -> bool:
        instance = self._settings.group_instance_id
        # A restarted static member gets a new id, but the assignment may still have the old one.
        return leader == self._metadata().member_id or (instance is not None and leader[:-_UUID_CHARS] == instance)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        done, loop = Future(), self._consumer._net  # noqa: SLF001 - kafka-python offers no public way to its loop

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # handed to the awaiting callback, which kafka-python logs
                failure = error
                loop.call_soon_threadsafe(lambda: done.failure(failure))
            else:
                loop.call_soon_threadsafe(lambda: done.success(result))

        threading.Thread(target=run, name="kctl-rebalance", daemon=True).start()
        return await done


def take_in_metadata(consumer: Any) -> None:
    """Gives kafka-python's coordinator its first metadata snapshot. Call it after `subscribe`. If the snapshot is empty
    at a leader's first assignment, version 3.0.12 later treats all partitions as new and rebalances again."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to tell
    coordinator._handle_metadata_update(coordinator._cluster)  # noqa: SLF001


def watch_metadata(consumer: Any, partitions: Mapping[str, int]) -> None:
    """Makes a leader start a rebalance if the partition counts of topics differ from `partitions`. kafka-python 3.0.12
    does this only if the leader has made an assignment. A restarted static leader has made none."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to tell
    coordinator._assignment_snapshot = {topic: set(range(count)) for topic, count in partitions.items()}  # noqa: SLF001


def prepare_each_join(consumer: Any) -> None:
    """Makes an evicted member give up its partitions before it joins again. After an eviction between JoinGroup and
    SyncGroup, kafka-python 3.0.12 would claim a cooperative member's old partitions, which others may now own."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to see it
    reset = coordinator.reset_generation

    def reset_generation(*args: Any, **options: Any) -> None:
        reset(*args, **options)
        coordinator.rejoining = False

    coordinator.reset_generation = reset_generation


def has_given_up_heartbeats(consumer: Any) -> bool:
    """Whether the member sends no heartbeats although its state is stable. kafka-python 3.0.12 stops heartbeats after
    the error FENCED_INSTANCE_ID."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to ask
    with coordinator._lock:  # noqa: SLF001
        is_silent = coordinator.state is MemberState.STABLE and not coordinator._heartbeat_enabled  # noqa: SLF001
        return is_silent and not coordinator.need_rejoin() and not coordinator.rejoining


MOST = 20


def partition_names(
    partitions: Collection[TopicPartition], at: Mapping[TopicPartition, int] = MappingProxyType({})
) -> str:
    first = sorted(partitions)[:MOST]
    names = ", ".join(f"{tp.topic}-{tp.partition}" + (f" from {at[tp]}" if tp in at else "") for tp in first)
    return f"{names} and {len(partitions) - MOST} more" if len(partitions) > MOST else names or "none"


def topics_of(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({tp.topic for tp in partitions}))
