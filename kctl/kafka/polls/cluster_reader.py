"""Polls a cluster's groups: state, members, committed offsets, log ends and starts. If a broker does not answer, the
rest of the poll skips this broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field

from kctl.errors import BrokerUnreachable, KctlError, WrongProtocol
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.reasons import code_failure
from kctl.kafka.offsets import fetch_all, share_starts
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.polls.group_sources import AllGroups, NamedGroups
from kctl.kafka.polls.log_reader import LogReader, WantedLogs
from kctl.kafka.protocol.committed_bytes import CommittedResponses, GroupOffsets, by_topic
from kctl.kafka.protocol.raw import UNREADABLE, KeptRequests


@dataclass(eq=False, repr=False)
class ClusterReader:
    """Polls a cluster's groups and their logs. Not thread-safe. Each step of a poll takes at most `timeout_seconds`.
    The first poll connects. If a poll fails or returns `errors`, the next poll reconnects."""

    _access: ClusterAccess
    _timeout_seconds: float
    _groups: AllGroups | NamedGroups = field(default_factory=AllGroups)
    logs: InitVar[WantedLogs] = WantedLogs()  # noqa: RUF009 - it is frozen
    _: KW_ONLY
    wants_topic: Callable[[str], bool] = lambda _: True  # filters the topics of committed offsets
    add_more: Callable[[ClusterReading], None] = lambda _: None
    """Adds groups that Kafka does not know, before logs are read."""

    def __post_init__(self, logs: WantedLogs) -> None:
        self._logs = LogReader(logs)
        self._connection: ClusterConnection | None = None
        self._committed = CommittedReader()
        self.asked: Mapping[str, int] = {}

    @classmethod
    def of_group(
        cls, access: ClusterAccess, group: str, topics: Iterable[str], isolation_level: str, timeout_seconds: float
    ) -> ClusterReader:
        """Returns a reader of one group and all partitions of `topics`, even partitions without commits."""
        names = frozenset(topics)
        logs = WantedLogs(
            topics=names,
            ends_stable=isolation_level == "read_committed",
            topics_seconds=5.0,  # so that an added partition is soon read
            starts_each_time=False,
        )
        return cls(access, timeout_seconds, NamedGroups([group]), logs, wants_topic=names.__contains__)

    def read(self) -> ClusterReading:
        """Polls once. Raises KctlError."""
        try:
            connection = self._connection or self._open()
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
        connection, self._connection, self._committed = self._connection, None, CommittedReader()
        if connection is not None:
            self._groups.reconnect()
            connection.close()

    def _open(self) -> ClusterConnection:
        self._connection = ClusterConnection(self._access, self._timeout_seconds, has_retries=False)
        self._logs.learn(self._connection.open(self._logs.names))
        return self._connection

    def _read(self, connection: ClusterConnection) -> ClusterReading:
        reading = ClusterReading()
        silent = self._groups.find(connection, reading)
        if silent >= connection.brokers.keys():
            raise BrokerUnreachable(reading.errors.get("groups", "the cluster has no brokers"))
        self._read_committed(connection, reading)
        self.add_more(reading)
        # Reads log ends after committed offsets, so a lag may be slightly too large but never too small.
        self._logs.read(connection, reading, silent)
        return reading

    def _read_committed(self, connection: ClusterConnection, reading: ClusterReading) -> None:
        offsets: dict[int, list[str]] = defaultdict(list)
        shares: dict[int, list[str]] = defaultdict(list)
        for group in reading.groups.values():
            (shares if group.type == "share" else offsets)[group.coordinator].append(group.group)
        connection.deadline.renew()
        known = dict[str, GroupOffsets]()
        for name, answer in self._committed.read(connection, offsets).items():
            if isinstance(answer, KctlError):
                reading.failed("committed", answer)
            else:
                known[name] = answer
        reading.committed = self._wanted(known)
        for name, starts in share_starts(connection, shares).items():
            if isinstance(starts, KctlError):
                reading.failed("committed", starts)
                continue
            wanted = {key: each for key, each in starts.items() if self.wants_topic(key[0])}
            begun = {key: each.offset for key, each in wanted.items() if each.offset is not None}
            reading.committed[name] = by_topic(begun)
            reading.share_lag[name] = {key: each.lag for key, each in wanted.items() if each.lag is not None}

    def _wanted(self, committed: dict[str, GroupOffsets]) -> dict[str, GroupOffsets]:
        # Looks at distinct topics, because thousands of groups read a few topics, usually all wanted.
        topics = {topic for each in committed.values() for topic, _ in each.topics}
        unwanted = {topic for topic in topics if not self.wants_topic(topic)}
        return {name: each.without(unwanted) for name, each in committed.items()} if unwanted else committed


class CommittedReader:
    def __init__(self) -> None:
        self._requests = KeptRequests()
        self._responses: dict[int, CommittedResponses] = defaultdict(CommittedResponses)

    def read(
        self, connection: ClusterConnection, groups: Mapping[int, list[str]]
    ) -> dict[str, GroupOffsets | KctlError]:
        """Returns each group's committed offsets, or its error. `groups` maps coordinators to names."""
        requests = [(node, self._requests.of(node, names, fetch_all)) for node, names in groups.items()]
        found: dict[str, GroupOffsets | KctlError] = {}
        for (node, names), answer in zip(groups.items(), connection.ask_each(requests), strict=True):
            if isinstance(answer, KctlError):
                found |= dict.fromkeys(names, answer)
                continue
            try:
                fetched = self._responses[node].read(answer.body)
            except UNREADABLE as error:
                found |= dict.fromkeys(names, WrongProtocol(f"a response to OffsetFetch cannot be read: {error}"))
                continue
            for name, (code, committed) in fetched.items():
                found[name] = code_failure(code, f"group {name}") if code else committed
        return found
