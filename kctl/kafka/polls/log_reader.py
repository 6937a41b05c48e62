"""Reads the ends and starts of the logs that groups read, with ListOffsets requests to their leaders."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition, Topic, topics_of
from kctl.kafka.offsets import EARLIEST, LATEST, log_offsets_on
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.protocol.committed_bytes import GroupOffsets
from kctl.kafka.protocol.offset_bytes import PartitionKeys
from kctl.kafka.protocol.raw import Raw

_NO_SUCH_TOPIC = (0, 3)
"""Topic errors that mean a missing partition: no error (the topic does not have it), or UNKNOWN_TOPIC_OR_PARTITION."""
_UNKNOWN = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})


@dataclass(frozen=True, slots=True)
class WantedLogs:
    topics: Collection[str] = ()
    reads_committed: Callable[[str], bool] = lambda _: False
    """Whether a group's lag counts to the last stable offset."""
    ends_stable: bool = False
    topics_seconds: float = 60.0  # how long metadata is valid unless a broker contradicts
    starts_each_time: bool = True
    """Whether each poll reads log starts; otherwise only polls with new metadata do."""


class LogReader:
    def __init__(self, wanted: WantedLogs) -> None:
        self._wanted = wanted
        self._topics: dict[str, Topic] = {}
        self._topics_at = 0.0
        self._asked: set[str] = set()  # topics asked for since the last poll
        self._starts_of: Mapping[str, Topic] = {}
        self._led = _Led({}, set(), {}, set(), [], {})
        self._keys = PartitionKeys()

    @property
    def names(self) -> list[str]:
        return sorted({*self._topics, *self._wanted.topics})

    def learn(self, metadata: Any) -> None:
        self._topics, self._topics_at = topics_of(metadata), time.monotonic()
        self._asked = {*self._topics}
        self._keys = PartitionKeys()  # drops keys of deleted topics

    def read(self, connection: ClusterConnection, reading: ClusterReading, silent: set[int]) -> None:
        """Adds log offsets to `reading`, which already has the committed offsets. Skips the brokers in `silent`. If
        another broker does not answer, adds it to `silent`. Raises KctlError if no broker answered."""
        committed = {topic for of_group in reading.committed.values() for topic, _ in of_group.topics}
        names = committed.union(self._wanted.topics)
        if time.monotonic() - self._topics_at > self._wanted.topics_seconds:
            connection.deadline.renew()
            self.learn(connection.metadata(sorted(names)))
        doubtful = names & _topics((*self._led.leaderless, *self._led.absent))
        self._refresh(connection, doubtful | names - self._topics.keys())
        self._lead(reading)
        if self._refresh(connection, _topics(self._led.absent)):
            self._lead(reading)
        self._ask(connection, reading, silent)
        # A leader may have moved.
        if self._refresh(connection, _topics((*reading.unanswered, *reading.unknown))):
            self._lead(reading)
            self._ask(connection, reading, silent)
        self._asked.clear()
        self._report_topics(reading)

    def _refresh(self, connection: ClusterConnection, names: set[str]) -> bool:
        if names <= self._asked:
            return False
        connection.deadline.renew()
        topics = topics_of(connection.metadata(sorted(names - self._asked)))
        self._asked |= names
        if all(self._topics.get(name) == topic for name, topic in topics.items()):
            return False
        self._topics = self._topics | topics
        return True

    def _lead(self, reading: ClusterReading) -> None:
        partitions = self._partitions(reading.committed.values())
        if self._wanted.topics:
            partitions = partitions.union(
                *({(name, each.partition) for each in topic.partitions} for name, topic in self._topics.items())
            )
        if self._led.topics is not self._topics or self._led.partitions != partitions:
            self._led = _led(self._topics, partitions)

    def _partitions(self, of_groups: Iterable[GroupOffsets]) -> set[Partition]:
        # Joins topics first, because many groups read the same ones.
        topics = {each for committed in of_groups for each in committed.topics}
        return set().union(*(self._keys.of(*topic) for topic in topics)) if topics else set()

    def _ask(self, connection: ClusterConnection, reading: ClusterReading, silent: set[int]) -> None:
        wanted, led = self._wanted, self._led
        reading.unknown = set(led.absent)
        reading.unanswered = dict.fromkeys(led.leaderless, "LEADER_NOT_AVAILABLE")
        if silent & led.leaders.keys():
            reading.failed("offsets", reading.errors.get("groups", "a broker did not answer"))
        ask = partial(self._ask_for, connection, reading, silent)
        ask(led.leaders, LATEST, reading.end, led.requests, is_stable=wanted.ends_stable)
        if wanted.ends_stable:
            ask(led.leaders, LATEST, reading.high_watermark)
        stable = self._partitions(
            committed for name, committed in reading.committed.items() if wanted.reads_committed(name)
        )
        if stable:
            of_stable = {node: _only(topics, stable) for node, topics in led.leaders.items()}
            ask(of_stable, LATEST, reading.stable_end, is_stable=True)
        if wanted.starts_each_time or self._starts_of is not self._topics:
            ask(led.leaders, EARLIEST, reading.start, led.requests)
            self._starts_of = self._topics

    def _ask_for(
        self,
        connection: ClusterConnection,
        reading: ClusterReading,
        silent: set[int],
        leaders: Mapping[int, Mapping[str, Sequence[int]]],
        at: int,
        into: dict[Partition, int],
        kept: dict[tuple[int, int], Raw] | None = None,
        *,
        is_stable: bool = False,
    ) -> None:
        reachable = {node: topics for node, topics in leaders.items() if node not in silent}
        connection.deadline.renew()
        answers = log_offsets_on(connection, reachable, at, self._keys, is_read_committed=is_stable, kept=kept)
        into.update(answers.offsets)
        for node, why in answers.failed.items():
            reading.failed("offsets", why)
            silent.add(node)
        for key, error in answers.errors.items():
            if error in _UNKNOWN:
                reading.unknown.add(key)
            else:
                reading.unanswered[key] = error

    def _report_topics(self, reading: ClusterReading) -> None:
        topics = self._topics.values()
        reading.topic_ids = {topic.name: topic.topic_id for topic in topics if topic.topic_id is not None}
        reading.partitions = {topic.name: len(topic.partitions) for topic in topics if topic.partitions}
        found = {topic.name for topic in topics if topic.error_code != _NO_SUCH_TOPIC[1]}
        reading.missing_topics = tuple(sorted(set(self._wanted.topics) - found))
        reading.unclear_topics = {topic.name for topic in topics if topic.error_code not in _NO_SUCH_TOPIC}


class _Led(NamedTuple):
    topics: Mapping[str, Topic]
    partitions: set[Partition]
    leaders: dict[int, dict[str, list[int]]]
    absent: set[Partition]
    leaderless: list[Partition]
    requests: dict[tuple[int, int], Raw]


def _led(topics: Mapping[str, Topic], partitions: set[Partition]) -> _Led:
    leaders: dict[int, dict[str, list[int]]] = {}
    present, leaderless = set[Partition](), list[Partition]()
    for topic in topics.values():
        for each in topic.partitions:
            key = topic.name, each.partition
            if key not in partitions:
                continue
            present.add(key)
            if each.leader is None:
                leaderless.append(key)
            else:
                leaders.setdefault(each.leader, {}).setdefault(topic.name, []).append(each.partition)
    unclear = {
        key for key in partitions - present if topics.get(key[0]) and topics[key[0]].error_code not in _NO_SUCH_TOPIC
    }
    return _Led(topics, partitions, leaders, partitions - present - unclear, [*leaderless, *unclear], {})


def _topics(partitions: Iterable[Partition]) -> set[str]:
    return {topic for topic, _ in partitions}


def _only(topics: Mapping[str, Sequence[int]], partitions: set[Partition]) -> dict[str, list[int]]:
    chosen = {
        topic: [number for number in numbers if (topic, number) in partitions] for topic, numbers in topics.items()
    }
    return {topic: numbers for topic, numbers in chosen.items() if numbers}
