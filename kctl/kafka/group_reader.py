"""Polls a group and its topics again and again: what is committed, where the logs end, the members of the group.

One thread owns a `GroupReader`. It connects when first asked, and lets the connection go when somebody did not answer,
so that the next poll begins afresh; how often there is one, and what old offsets are still worth, is decided in
`broker_cache`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kctl.errors import GroupMissing, KctlError
from kctl.kafka.access import Access
from kctl.kafka.connection import Connection
from kctl.kafka.groups import describe_groups
from kctl.kafka.layout import Partition, Topic, topics_of
from kctl.kafka.offsets import EARLIEST, LATEST, committed, log_offsets
from kctl.reduce.base import GroupStats

__all__ = ["GroupReader", "Reading"]

_UNKNOWN_TOPIC = 3
_LAYOUT_SECONDS = 5.0
"""For so long, partitions, their leaders, where their logs begin and that there is no such group are taken for what
they were. An error of a partition, as of one that has another leader now, has them asked at once."""
_OF_ONE_PARTITION = frozenset(
    {
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNSTABLE_OFFSET_COMMIT",
    }
)
"""Errors of a single partition that may pass: the others, and the broker, may be well."""


@dataclass(slots=True)
class Reading:
    """One poll of the brokers. A partition missing from a part is one that the part did not answer for this time.

    `committed` holds None for a partition the group has committed nothing for: that is knowledge, not a gap. `start` is
    asked every few seconds only.
    `errors` names the parts that failed, `committed`, `offsets` or `group`, with the reason. Of the offsets it may be
    one broker that did not answer: what the others lead is reported all the same.
    """

    partitions: frozenset[Partition]
    unclear_topics: frozenset[str] = frozenset()
    """Topics whose partitions the brokers could not list just now; they exist nevertheless."""
    committed: dict[Partition, int | None] = field(default_factory=dict)
    start: dict[Partition, int] = field(default_factory=dict)
    end: dict[Partition, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    group: GroupStats | None = None
    """None when its coordinator does not know, as while the group moves to another one."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic (KIP-516); one that is deleted and recreated has another. Old brokers have none."""


@dataclass(frozen=True, slots=True)
class _Layout:
    topics: Mapping[str, Topic]
    read_at: float

    @property
    def partitions(self) -> list[Partition]:
        return [(topic.name, each.partition) for topic in self.topics.values() for each in topic.partitions]

    @property
    def led(self) -> set[Partition]:
        return {
            (topic.name, each.partition)
            for topic in self.topics.values()
            for each in topic.partitions
            if each.leader is not None
        }


class GroupReader:
    """Not thread-safe: one thread asks and closes. Every call ends within a few times `timeout_seconds`."""

    def __init__(
        self, access: Access, group: str, topics: Iterable[str], isolation_level: str, timeout_seconds: float
    ) -> None:
        self._access = access
        self._name = group
        self._topics = sorted(set(topics))
        self._is_read_committed = isolation_level == "read_committed"
        self._timeout_seconds = timeout_seconds
        self._connection: Connection | None = None
        self._layout: _Layout | None = None
        self._group: GroupStats | None = None

    def missing_topics(self) -> list[str]:
        """The configured topics that do not exist.

        Raises:
            KctlError: no broker answered, and why.
        """
        topics = self._refreshed().topics
        return [name for name in self._topics if name not in topics or topics[name].error_code == _UNKNOWN_TOPIC]

    def read(self) -> Reading:
        """Committed offsets first, end offsets last, so that a lag may be too large by a moment but never too small.

        Raises:
            KctlError: no broker answered, nothing is known.
        """
        try:
            reading = self._read()
        except BaseException:
            self.close()
            raise
        if reading.errors:
            self.close()
        return reading

    def close(self) -> None:
        """Closes the connections; the next question opens new ones."""
        connection, self._connection, self._layout = self._connection, None, None
        if connection is not None:
            connection.close()

    def _read(self) -> Reading:
        layout = self._layout
        if layout is not None and time.monotonic() - layout.read_at < _LAYOUT_SECONDS:
            reading = self._read_as(layout, is_new=False)
            if reading.errors or reading.end.keys() >= layout.led:
                return reading
        layout = self._layout = self._refreshed()
        return self._read_as(layout, is_new=True)

    def _refreshed(self) -> _Layout:
        if self._connection is None:
            self._connection = Connection(self._access, self._timeout_seconds, has_retries=False)
            try:
                metadata = self._connection.open(self._topics)
            except BaseException:
                self.close()
                raise
        else:
            self._connection.deadline.renew()
            metadata = self._connection.metadata(self._topics)
        return _Layout(topics_of(metadata), time.monotonic())

    def _read_as(self, layout: _Layout, *, is_new: bool) -> Reading:
        topics = layout.topics.values()
        partitions = layout.partitions
        reading = Reading(
            frozenset(partitions),
            frozenset(topic.name for topic in topics if topic.error_code not in (0, _UNKNOWN_TOPIC)),
            topic_ids={topic.name: topic.topic_id for topic in topics if topic.topic_id is not None},
        )
        self._read_committed(reading, partitions)
        if is_new:
            self._read_offsets(reading, layout, EARLIEST, reading.start)
        self._read_offsets(reading, layout, LATEST, reading.end)
        if is_new or self._group is None or self._group.state != "dead":
            self._group = self._group_stats(reading)
        reading.group = self._group
        return reading

    def _read_committed(self, reading: Reading, partitions: list[Partition]) -> None:
        answers = committed(self._asked(), {self._name: partitions})[self._name]
        if isinstance(answers, KctlError):
            reading.errors["committed"] = str(answers)
        else:
            reading.committed.update((key, each.offset) for key, each in answers.items() if each.error is None)

    def _read_offsets(self, reading: Reading, layout: _Layout, at: int, into: dict[Partition, int]) -> None:
        connection = self._asked()
        answers = log_offsets(
            connection, layout.topics, layout.partitions, at, is_read_committed=self._is_read_committed
        )
        for key, each in answers.items():
            if each.offset is not None:
                into[key] = each.offset
            elif each.error is not None and each.error not in _OF_ONE_PARTITION:
                reading.errors["offsets"] = each.error

    def _group_stats(self, reading: Reading) -> GroupStats | None:
        described = describe_groups(self._asked(), [self._name])
        if not described:
            reading.errors["group"] = f"group {self._name}: its coordinator does not know just now"
            return None
        [group] = described
        if isinstance(group.error, GroupMissing):
            return GroupStats("dead", 0)  # it has no member and has committed nothing: that is knowledge
        if group.error is not None:
            reading.errors["group"] = str(group.error)
        if group.state is None or group.members is None:
            return None
        # Kafka's words run together: PreparingRebalance
        return GroupStats(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", group.state).lower(), len(group.members))

    def _asked(self) -> Connection:
        """The connection, with its whole time for the next question."""
        assert self._connection is not None
        self._connection.deadline.renew()
        return self._connection
