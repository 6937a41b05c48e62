"""The group of masters: a classic consumer group without partitions. The group's leader distributes the `Roster`.
With Kafka 4.3 and a session of 6 s, 20 masters know each other after 4 s. They notice a killed master after 7 s.

The group does not use the newer protocol (KIP-848), in which members cannot send their addresses. It does not use
static members either. A new static member would silently fence an older member with the same instance id. If a
static member rejoined without a rebalance, other hosts would keep its old address.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.base import MemberState
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kctl.hosts.roster import Host, Roster, agreed, decoded, lost
from kctl.kafka.client.access import ClusterAccess
from kctl_agent.kafka.clients import take_up_forgotten_join
from kctl_agent.kafka.errors import reason

log = logging.getLogger(__name__)

SESSION_SECONDS = 6.0
"""The shortest session that brokers allow by default (`group.min.session.timeout.ms`)."""
_REST_SECONDS = 0.5  # kafka-python sends heartbeats without polls; more polls would cost 0.3 % of a core
_AGAIN_SECONDS = 2.0
_CLOSE_MS = 2000
_LEAVE_SECONDS = SESSION_SECONDS + 2.0
"""A rebalance waits for a recently killed member until its session ends."""
_FORGOTTEN_MOST = 100


@dataclass(frozen=True, slots=True)
class Seen:
    """The last roster, and the state of this master's membership."""

    roster: Roster
    heartbeat_at: float | None = None  # when the last answered heartbeat or join was sent, in monotonic seconds
    error: str | None = None
    joined_at: Mapping[str, float] = field(default_factory=dict)  # host key -> monotonic seconds


class HostsMember:
    """This master's membership in the group of masters, on the thread `kctl-hosts`. Any thread may read `seen`."""

    def __init__(self, access: ClusterAccess, group: str, topic: str, me: Host, forget_seconds: float) -> None:
        """`topic` must exist, because a consumer must subscribe to a topic. No partition of it is assigned or read."""
        self._access = access
        self._group = group
        self._topic = topic
        self._me = me
        self._forget_seconds = forget_seconds
        self._generation = -1
        self._joins_at = 0.0
        self._describing = threading.Lock()
        self._is_ended = threading.Event()
        self._has_changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kctl-hosts", daemon=True)
        self.seen = Seen(Roster())

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Notifies the other hosts and leaves the group. Blocks for a few seconds."""
        if not self._thread.is_alive():
            return
        self._describe(is_leaving=True)
        self._is_ended.set()
        self._thread.join(_LEAVE_SECONDS + 2 * _CLOSE_MS / 1000)

    def forget(self, host: Host) -> None:
        forgotten = [each for each in self._me.forgotten if each != host.key]
        self._describe(forgotten=(*forgotten, host.key)[-_FORGOTTEN_MOST:])

    def _describe(self, **changes: Any) -> None:
        with self._describing:
            self._me = msgspec.structs.replace(self._me, **changes)
        self._has_changed.set()

    def _run(self) -> None:
        while not self._is_ended.is_set():
            try:
                self._take_part()
            except Exception as error:  # any client may join, and its bytes may make kafka-python raise anything
                why = reason(error) if isinstance(error, KafkaError) else f"a member cannot be read: {error!r:.100}"
                if self.seen.error is None:
                    log.warning("action=not_joined group=%s error=%s", self._group, why)
                self.seen = replace(self.seen, error=why)
                self._is_ended.wait(_AGAIN_SECONDS)

    def _take_part(self) -> None:
        consumer = KafkaConsumer(
            group_id=self._group,
            client_id=f"kctl-hosts-{self._me.name}",
            partition_assignment_strategy=[self._assignor()],
            enable_auto_commit=False,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=30_000,
            reconnect_backoff_max_ms=1000,
            allow_auto_create_topics=False,
            **self._access.client_settings(),
        )
        try:
            consumer.subscribe([self._topic])
            while not self._is_ended.is_set():
                self._turn(consumer)
            self._leave(consumer)
        finally:
            consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)

    def _turn(self, consumer: Any) -> None:
        coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to it
        is_stable = not coordinator.need_rejoin() and consumer.group_metadata().state is MemberState.STABLE
        if is_stable and self._has_changed.wait(_REST_SECONDS):
            self._has_changed.clear()
            coordinator.request_rejoin()
        take_up_forgotten_join(consumer)
        consumer.poll(timeout_ms=0 if is_stable else 200)
        heartbeat_at = _answered_at(coordinator.heartbeat)
        if self.seen.roster.hosts and heartbeat_at > (self.seen.heartbeat_at or 0.0):
            self.seen = replace(self.seen, heartbeat_at=heartbeat_at)

    def _leave(self, consumer: Any) -> None:
        # Waits for the roster that shows this host as leaving: otherwise the other hosts report it missing.
        deadline = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < deadline:
            self._turn(consumer)
            if any(each.key == self._me.key and each.is_leaving for each in self.seen.roster.hosts):
                return

    def _assignor(self) -> type[AbstractPartitionAssignor]:
        member = self

        class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
            name = "kctl-hosts"

            def metadata(self, topics: Any) -> Any:
                member._joins_at = time.monotonic()
                return ConsumerProtocolSubscription(0, sorted(topics), msgspec.json.encode(member._me))

            def assign(self, _cluster: Any, members: Any) -> Mapping[str, Any]:
                # Only the group's leader runs this, on kafka-python's I/O thread.
                described = [decoded(Host, bytes(each.metadata.user_data or b"")) for each in members]
                roster = agreed(member._me.name, described, member.seen.roster, time.time(), member._forget_seconds)
                note = msgspec.json.encode(roster)
                return {each.member_id: ConsumerProtocolAssignment(0, [], note) for each in members}

            def on_assignment(self, assignment: Any, generation: int) -> None:
                member._assigned(bytes(assignment.user_data or b""), generation)

        return Assignor

    def _assigned(self, note: bytes, generation: int) -> None:
        roster = decoded(Roster, note)
        if roster is None:
            self.seen = replace(self.seen, error="the leader of the group is not a master of this fleet")
        else:
            is_next = generation == self._generation + 1  # otherwise hosts may have left in order in between
            missed = lost(self.seen.roster, roster, time.time()) if is_next else ()
            if missed != self._me.missed:
                self._describe(missed=missed)
            before, now = self.seen.joined_at, time.monotonic()
            joined_at = {each.key: before.get(each.key, now) for each in roster.hosts}
            self.seen, self._generation = Seen(roster, self._joins_at, joined_at=joined_at), generation


def _answered_at(heartbeat: Any) -> float:
    # The time of the answer does not count, because a process that was frozen reads an old answer late.
    return float(heartbeat.last_send) if heartbeat.last_receive >= heartbeat.last_send else 0.0
