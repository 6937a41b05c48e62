"""Polls all groups of a cluster again and again: which there are, their members, what they committed, where logs end.

One thread owns a `ClusterReader`. The requests of a poll: ListGroups to each broker, which is how coordinators are
known (and of a group that is on no list any more, whether its coordinator reports it as gone); OffsetFetch and Describe
to each coordinator; ListOffsets twice (end, start) to each leader; Metadata once a minute, for a topic that is new, and
after an error. A broker that does not answer is asked no more in that poll, so that it costs one time-out; what it
knows is missing, and named.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.access import Access
from kctl.kafka.connection import Connection
from kctl.kafka.groups import ListedGroup, count_members, list_each
from kctl.kafka.layout import Partition, Topic, topics_of
from kctl.kafka.missing_groups import MissingGroups
from kctl.kafka.offset_bytes import Keys, TopicOffsets, by_topic
from kctl.kafka.offsets import EARLIEST, LATEST, committed_on, log_offsets_on
from kctl.kafka.raw import Raw
from kctl.kafka.share import share_starts_on

__all__ = ["PARTS", "ClusterReader", "ClusterReading"]

PARTS = ("groups", "committed", "members", "offsets")
_LAYOUT_SECONDS = 60.0
_NO_SUCH_TOPIC = (0, 3)
"""UNKNOWN_TOPIC_OR_PARTITION; or the topic is there, and the partition is not among its own."""
_UNKNOWN = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
_NO_MEMBERS = frozenset({"Empty", "Dead"})


@dataclass(slots=True)
class ClusterReading:
    """One poll. What is missing from a part was not answered this time, but for what `is_listed_in_full` reports.

    `errors` names the parts that failed in whole or for one broker, with the reason.
    """

    groups: dict[str, ListedGroup] = field(default_factory=dict)
    is_listed_in_full: bool = True
    """Whether every broker has listed its groups: then one that is missing does not exist, unless it is `unclear`."""
    unclear: set[str] = field(default_factory=set)
    """Groups that no broker lists any more, and that may be there all the same: their coordinator is just moving."""
    members: dict[str, int] = field(default_factory=dict)
    committed: dict[str, tuple[TopicOffsets, ...]] = field(default_factory=dict)
    """Each topic once. Of a share group, the offset below which all is done."""
    share_lag: dict[str, dict[Partition, int]] = field(default_factory=dict)
    """Of share groups the broker itself counts what is not done yet."""
    end: dict[Partition, int] = field(default_factory=dict)
    stable_end: dict[Partition, int] = field(default_factory=dict)
    """Last stable offsets, of what groups read that read committed records alone."""
    start: dict[Partition, int] = field(default_factory=dict)
    unknown: set[Partition] = field(default_factory=set)
    """Partitions that do not exist, or not any more."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    """How many each of the topics has that groups read."""
    brokers: dict[int, str] = field(default_factory=dict)
    """Number to `host:port`."""
    errors: dict[str, str] = field(default_factory=dict)

    def failed(self, part: str, why: object) -> None:
        self.errors.setdefault(part, str(why))


class ClusterReader:
    """Not thread-safe: one thread asks and closes. Every poll ends within a few times `timeout_seconds`."""

    def __init__(
        self,
        access: Access,
        timeout_seconds: float,
        *,
        wants_group: Callable[[str], bool] = lambda _: True,
        wants_topic: Callable[[str], bool] = lambda _: True,
        reads_committed: Callable[[str], bool] = lambda _: False,
        has_whole_topics: bool = False,
    ) -> None:
        """`wants_group` and `wants_topic` are asked for names; `reads_committed` whether the lag of a group is counted
        to the last stable offset. `has_whole_topics`: logs of partitions that no group has committed too, if one has
        committed others of their topic."""
        self._has_whole_topics = has_whole_topics
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._wants_group, self._wants_topic, self._reads_committed = wants_group, wants_topic, reads_committed
        self._connection: Connection | None = None
        self._topics: dict[str, Topic] = {}
        self._topics_at = 0.0
        self._led = _Led({}, set(), {}, set(), None, {})
        self._missing = MissingGroups()
        self._keys = Keys()
        self.asked: Mapping[str, int] = {}
        """How many requests of each name the last poll has sent."""

    def read(self) -> ClusterReading:
        """Committed offsets first, end offsets last, so that a lag may be too large by a moment but never too small.

        Raises:
            KctlError: no broker answered, nothing is known.
        """
        try:
            connection = self._opened()
            before = connection.asked.copy()
            reading = self._read(connection)
            self.asked = connection.asked - before
        except BaseException:
            self.close()
            raise
        if reading.errors:
            self.close()
        return reading

    def close(self) -> None:
        """Closes the connections; the next poll opens new ones."""
        connection, self._connection, self._topics = self._connection, None, {}
        if connection is not None:
            self._missing.reconnect()
            connection.close()

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._access, self._timeout_seconds, has_retries=False)
            self._connection.open()
        return self._connection

    def _read(self, connection: Connection) -> ClusterReading:
        reading, silent, absent = ClusterReading(), set[int](), self._led.absent
        connection.deadline.renew()
        self._read_groups(connection, reading, silent)
        self._find_unclear(connection, reading)
        connection.deadline.renew()
        self._read_coordinators(connection, reading)
        wanted = self._partitions(reading.committed.values())
        connection.deadline.renew()
        self._refresh_topics(connection, {topic for topic, _ in wanted})
        reading.partitions = {name: len(topic.partitions) for name, topic in self._topics.items() if topic.partitions}
        reading.brokers = {node: broker.address for node, broker in connection.brokers.items()}
        if self._has_whole_topics:
            wanted = wanted.union(*({(name, n) for n in range(count)} for name, count in reading.partitions.items()))
        self._read_logs(connection, reading, wanted, silent)
        if reading.unknown - absent:  # what was absent before is no news: a partition that was added is
            self._topics_at = 0.0
        return reading

    def _read_groups(self, connection: Connection, reading: ClusterReading, silent: set[int]) -> None:
        nodes = sorted(connection.brokers)
        for node, answer in zip(nodes, list_each(connection, nodes), strict=True):
            if isinstance(answer, KctlError):
                reading.is_listed_in_full = False
                reading.failed("groups", answer)
                if isinstance(answer, BrokerUnreachable):
                    silent.add(node)
            else:
                reading.groups.update((each.group, each) for each in answer if self._wants_group(each.group))
        if not reading.is_listed_in_full:  # of the groups that were not listed nothing else can be asked for
            for part in ("committed", "members"):
                reading.failed(part, reading.errors["groups"])
        if len(silent) == len(nodes):
            raise BrokerUnreachable(reading.errors.get("groups", "the cluster has no brokers"))

    def _find_unclear(self, connection: Connection, reading: ClusterReading) -> None:
        if not reading.is_listed_in_full:
            self._missing.remember(reading.groups)
            return
        for name, error in self._missing.find(connection, reading.groups).items():
            reading.unclear.add(name)
            if error is not None:
                for part in ("groups", "committed", "members"):
                    reading.failed(part, error)

    def _read_coordinators(self, connection: Connection, reading: ClusterReading) -> None:
        offsets: dict[int, list[str]] = defaultdict(list)
        shares: dict[int, list[str]] = defaultdict(list)
        described: dict[tuple[int, str], list[str]] = defaultdict(list)
        for group in reading.groups.values():
            (shares if group.type == "share" else offsets)[group.coordinator].append(group.group)
            if group.state in _NO_MEMBERS:
                reading.members[group.group] = 0
            else:
                described[group.coordinator, group.type or "classic"].append(group.group)
        for name, answer in committed_on(connection, offsets).items():
            if isinstance(answer, KctlError):
                reading.failed("committed", answer)
            else:
                reading.committed[name] = tuple(each for each in answer if self._wants_topic(each.topic))
        for name, starts in share_starts_on(connection, shares).items():
            if isinstance(starts, KctlError):
                reading.failed("committed", starts)
                continue
            known = {key: each for key, each in starts.items() if self._wants_topic(key[0])}
            begun = {key: each.offset for key, each in known.items() if each.offset is not None}
            reading.committed[name] = by_topic(begun)
            reading.share_lag[name] = {key: each.lag for key, each in known.items() if each.lag is not None}
        connection.deadline.renew()
        for name, count in count_members(connection, described).items():
            if isinstance(count, KctlError):
                reading.failed("members", count)
            else:
                reading.members[name] = count

    def _partitions(self, of_groups: Iterable[tuple[TopicOffsets, ...]]) -> set[Partition]:
        """Many groups read the same partitions."""
        topics = {(each.topic, each.partitions) for committed in of_groups for each in committed}
        return set().union(*(self._keys.of(*topic) for topic in topics)) if topics else set()

    def _refresh_topics(self, connection: Connection, names: set[str]) -> None:
        if names - self._topics.keys() or time.monotonic() - self._topics_at > _LAYOUT_SECONDS:
            self._topics = topics_of(connection.metadata(sorted(names))) if names else {}
            self._topics_at = time.monotonic()
            self._keys = Keys()  # without those of topics that are gone

    def _read_logs(
        self, connection: Connection, reading: ClusterReading, wanted: set[Partition], silent: set[int]
    ) -> None:
        reading.topic_ids = {
            topic.name: topic.topic_id for topic in self._topics.values() if topic.topic_id is not None
        }
        if self._led.topics is not self._topics or self._led.wanted != wanted:
            self._led = _led(self._topics, wanted)
        reading.unknown.update(self._led.absent)
        leaders = {node: topics for node, topics in self._led.leaders.items() if node not in silent}
        if len(leaders) < len(self._led.leaders):
            reading.failed("offsets", reading.errors.get("groups", "a broker did not answer"))
        if self._led.leaderless:
            reading.failed("offsets", f"{self._led.leaderless[0]}-{self._led.leaderless[1]}: LEADER_NOT_AVAILABLE")
        requests = self._led.requests
        self._read_offsets(connection, reading, leaders, LATEST, reading.end, requests)
        stable = self._partitions(
            committed for name, committed in reading.committed.items() if self._reads_committed(name)
        )
        if stable:
            of_stable = {node: _only(topics, stable) for node, topics in leaders.items()}
            self._read_offsets(connection, reading, of_stable, LATEST, reading.stable_end, is_read_committed=True)
        self._read_offsets(connection, reading, leaders, EARLIEST, reading.start, requests)

    def _read_offsets(
        self,
        connection: Connection,
        reading: ClusterReading,
        leaders: Mapping[int, Mapping[str, Sequence[int]]],
        at: int,
        into: dict[Partition, int],
        kept: dict[tuple[int, int], Raw] | None = None,
        *,
        is_read_committed: bool = False,
    ) -> None:
        connection.deadline.renew()
        found = log_offsets_on(connection, leaders, at, self._keys, is_read_committed=is_read_committed, kept=kept)
        into.update(found.offsets)
        for (topic, partition), error in found.errors.items():
            if error in _UNKNOWN:
                reading.unknown.add((topic, partition))
            else:
                reading.failed("offsets", f"{topic}-{partition}: {error}")


class _Led(NamedTuple):
    """Which broker leads each of the partitions that are wanted."""

    topics: Mapping[str, Topic]
    wanted: set[Partition]
    leaders: dict[int, dict[str, list[int]]]
    absent: set[Partition]
    leaderless: Partition | None
    """One of those that have no leader just now."""
    requests: dict[tuple[int, int], Raw]
    """To list offsets, by leader and time; to be sent again as long as all of this is true."""


def _led(topics: Mapping[str, Topic], wanted: set[Partition]) -> _Led:
    leaders: dict[int, dict[str, list[int]]] = {}
    found, leaderless = set[Partition](), None
    for topic in topics.values():
        for each in topic.partitions:
            key = topic.name, each.partition
            if key not in wanted:
                continue
            found.add(key)
            if each.leader is None:
                leaderless = key
            else:
                leaders.setdefault(each.leader, {}).setdefault(topic.name, []).append(each.partition)
    unclear = {key for key in wanted - found if topics.get(key[0]) and topics[key[0]].error_code not in _NO_SUCH_TOPIC}
    return _Led(topics, wanted, leaders, wanted - found - unclear, leaderless or next(iter(unclear), None), {})


def _only(topics: Mapping[str, Sequence[int]], wanted: set[Partition]) -> dict[str, list[int]]:
    chosen = {topic: [number for number in numbers if (topic, number) in wanted] for topic, numbers in topics.items()}
    return {topic: numbers for topic, numbers in chosen.items() if numbers}
