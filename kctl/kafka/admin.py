"""Blocking questions to the brokers about one group and its topics, through kafka-python's admin client.

One thread owns a `GroupAdmin`. It connects when first asked and lets the connection go when a request fails, so that
the next question begins afresh; how often that is, and what old figures are still worth, is decided in `cluster`.
"""

from __future__ import annotations

import re
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kafka.protocol.consumer import IsolationLevel

from kctl.kafka.access import Access
from kctl.reduce.base import GroupFigures

__all__ = ["GroupAdmin", "Partition", "Reading"]

Partition: TypeAlias = tuple[str, int]
V = TypeVar("V")

_PARTITION_ERRORS = (
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
"""Errors of one partition. kafka-python raises the first of them and throws away what the others said."""
_LOST = (KafkaError, OSError, RuntimeError)
"""What a client that has lost its brokers raises; RuntimeError is its selector's when it was closed under a request."""
_UNKNOWN_TOPIC = UnknownTopicOrPartitionError.errno
_SELDOM_SECONDS = 5.0
"""For so long, partitions, their leaders and where their logs begin are taken for what they were. An error of a
partition, as of one that has another leader now, has them asked at once."""


@dataclass(slots=True)
class Reading:
    """One look at the brokers. A partition missing from a part is one that the part could not tell this time.

    `committed` holds None for a partition the group has committed nothing for: that is knowledge, not a gap. `start` is
    asked every few seconds only.
    `errors` names the parts that failed as a whole, `committed`, `offsets` or `group`, with the reason.
    """

    partitions: frozenset[Partition]
    unclear_topics: frozenset[str] = frozenset()
    """Topics whose partitions the brokers could not list just now; they exist nevertheless."""
    committed: dict[Partition, int | None] = field(default_factory=dict)
    start: dict[Partition, int] = field(default_factory=dict)
    end: dict[Partition, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    group: GroupFigures | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic (KIP-516); one that is deleted and made again has another. Old brokers have none."""


class _Client(KafkaAdminClient):  # type: ignore[misc]  # kafka-python is not typed
    """kafka-python's client, driven by the thread that asks: an I/O thread of its own has every request and every
    response handed over, which costs more than they do (benchmarks/master_at_rest)."""

    def __init__(self, **configs: Any) -> None:
        try:
            super().__init__(**configs)
        except BaseException:
            self._closed = False  # its close() believes an unfinished constructor to have closed already
            self.close()
            raise
        self._net.stop()  # from now on its run() drives the loop itself

    def offsets_at(
        self, led: Mapping[int, Iterable[Any]], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Mapping[Any, Any]:
        """One ListOffsets for each leader. `list_partition_offsets` asks for all metadata before each time, which costs
        more than the offsets (benchmarks/master_at_rest)."""

        async def ask() -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            for leader, partitions in led.items():
                request = self._list_partition_offsets_request(dict.fromkeys(partitions, spec), isolation.value)
                response = await self._manager.send(request, node_id=leader)
                found.update(self._list_partition_offsets_process_response(response))
            return found

        offsets: Mapping[Any, Any] = self._manager.run(ask)
        return offsets


@dataclass(frozen=True, slots=True)
class _Layout:
    """The topics' partitions and who leads them, negative: nobody."""

    led: Mapping[Any, int]
    unclear_topics: frozenset[str]
    topic_ids: Mapping[str, str]
    looked_at: float


class GroupAdmin:
    """Not thread-safe: one thread asks and closes. Every call ends within a few times `timeout_seconds`."""

    def __init__(
        self, access: Access, group: str, topics: Iterable[str], isolation_level: str, timeout_seconds: float
    ) -> None:
        self._access = access
        self._group = group
        self._topics = sorted(set(topics))
        self._isolation = IsolationLevel[isolation_level.upper()]
        self._timeout_seconds = timeout_seconds
        self._client: _Client | None = None
        self._layout: _Layout | None = None

    def missing_topics(self) -> list[str]:
        """The configured topics that do not exist.

        Raises:
            OSError, kafka.errors.KafkaError: no broker answered.
        """
        return [topic["name"] for topic in self._describe() if topic["error_code"] == _UNKNOWN_TOPIC]

    def read(self) -> Reading:
        """Committed offsets first, end offsets last, so that a lag may be too large by a moment but never too small.

        Raises:
            OSError, kafka.errors.KafkaError: no broker answered, nothing is known.
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
        client, self._client, self._layout = self._client, None, None
        if client is not None:
            client.close()

    def _read(self) -> Reading:
        layout = self._layout
        if layout is not None and time.monotonic() - layout.looked_at < _SELDOM_SECONDS:
            try:
                return self._read_as(layout, is_new=False)
            except _ChangedMeanwhile:
                pass
        layout = self._layout = self._looked()
        return self._read_as(layout, is_new=True)

    def _looked(self) -> _Layout:
        described = self._describe()
        led = {
            TopicPartition(topic["name"], partition["partition_index"]): partition["leader_id"]
            for topic in described
            for partition in topic["partitions"]
        }
        unclear = (topic["name"] for topic in described if topic["error_code"] not in (0, _UNKNOWN_TOPIC))
        ids = {topic["name"]: str(topic["topic_id"]) for topic in described if topic.get("topic_id")}
        return _Layout(led, frozenset(unclear), ids, time.monotonic())

    def _read_as(self, layout: _Layout, *, is_new: bool) -> Reading:
        """Raises _ChangedMeanwhile where the layout is not new."""
        partitions = frozenset((tp.topic, tp.partition) for tp in layout.led)
        reading = Reading(partitions, layout.unclear_topics, topic_ids=layout.topic_ids)
        all_of_them = sorted(layout.led)
        with_leader = [tp for tp in all_of_them if layout.led[tp] >= 0]
        each = _each if is_new else _all_or_none
        self._fill(reading, "committed", lambda: reading.committed.update(self._committed(all_of_them, each)))
        if is_new:
            begin = OffsetSpec.EARLIEST
            self._fill(
                reading, "offsets", lambda: reading.start.update(self._offsets(layout, with_leader, begin, each))
            )
        end = OffsetSpec.LATEST
        self._fill(reading, "offsets", lambda: reading.end.update(self._offsets(layout, with_leader, end, each)))
        self._fill(reading, "group", lambda: setattr(reading, "group", self._group_figures()))
        return reading

    def _group_figures(self) -> GroupFigures | None:
        """None when its coordinator cannot tell, as while the group moves to another one."""
        described = self._connected().describe_groups([self._group])[self._group]
        error = described["error"]
        # A group that has no member and has committed nothing does not exist: that is knowledge. A group of KIP-848 is
        # called dead here too, and only the words of the error say what it is.
        if error is not None and (described["group_state"] != "Dead" or "not a classic group" in error):
            return None
        # Kafka's words run together: PreparingRebalance
        state = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", described["group_state"]).lower()
        return GroupFigures(state, len(described["members"]))

    def _describe(self) -> list[dict[str, Any]]:
        topics: list[dict[str, Any]] = self._connected().describe_topics(self._topics)
        return topics

    @staticmethod
    def _fill(reading: Reading, part: str, ask: Callable[[], None]) -> None:
        if part in reading.errors:
            return
        try:
            ask()
        except _LOST as error:
            reading.errors[part] = f"{type(error).__name__}: {error}"

    def _committed(self, partitions: list[Any], each: _Each) -> dict[Partition, int | None]:
        def ask(some: list[Any]) -> Mapping[Any, Any]:
            offsets: Mapping[Any, Any] = self._connected().list_group_offsets({self._group: some})[self._group]
            return offsets

        # The wire says "nothing committed" by -1.
        return {
            (tp.topic, tp.partition): None if known.offset < 0 else known.offset
            for tp, known in each(ask, partitions).items()
        }

    def _offsets(self, layout: _Layout, partitions: list[Any], spec: OffsetSpec, each: _Each) -> dict[Partition, int]:
        def ask(some: list[Any]) -> Mapping[Any, Any]:
            led: dict[int, list[Any]] = defaultdict(list)
            for tp in some:
                led[layout.led[tp]].append(tp)
            return self._connected().offsets_at(led, spec, self._isolation)

        found = each(ask, partitions)
        return {(tp.topic, tp.partition): known.offset for tp, known in found.items() if known.offset >= 0}

    def _connected(self) -> _Client:
        if self._client is None:
            self._knock()
            milliseconds = int(self._timeout_seconds * 1000)
            self._client = _Client(
                **self._access.client_settings(),
                client_id="kctl-master",
                bootstrap_timeout_ms=milliseconds,
                request_timeout_ms=milliseconds,
                reconnect_backoff_max_ms=1000,
            )
        return self._client

    def _knock(self) -> None:
        """A plain connect first: refused is known at once, where the client would retry until its timeout."""
        error: OSError | None = None
        for server in self._access.servers:
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), self._timeout_seconds).close()
            except OSError as refused:
                error = refused
            else:
                return
        raise error or OSError("no bootstrap server is configured")


_Each: TypeAlias = Callable[[Callable[[list[Any]], Mapping[Any, Any]], list[Any]], dict[Any, Any]]


class _ChangedMeanwhile(Exception):
    """A partition is not any more what it was when the layout was looked at."""


def _all_or_none(ask: Callable[[list[Any]], Mapping[Any, V]], partitions: list[Any]) -> dict[Any, V]:
    """Raises _ChangedMeanwhile: one partition's error spoils it."""
    try:
        return dict(ask(partitions)) if partitions else {}
    except _PARTITION_ERRORS as error:
        raise _ChangedMeanwhile(error) from error


def _each(ask: Callable[[list[Any]], Mapping[Any, V]], partitions: list[Any]) -> dict[Any, V]:
    """`ask` for all at once; if one partition's error spoils that, halve until only the bad ones are missing."""
    if not partitions:
        return {}
    try:
        return dict(ask(partitions))
    except _PARTITION_ERRORS:
        if len(partitions) == 1:
            return {}
        middle = len(partitions) // 2
        return {**_each(ask, partitions[:middle]), **_each(ask, partitions[middle:])}
