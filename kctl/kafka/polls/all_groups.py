"""All groups of a cluster: ListGroups to each broker, so that coordinators are known, and Describe for members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import MemberCounts, describe_groups, list_each
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.polls.group_sources import MissingGroups

_NO_MEMBERS = frozenset({"Empty", "Dead"})


class AllGroups:
    """The groups of a cluster by discovery. For one `ClusterReader`, on its thread."""

    def __init__(self, wants: Callable[[str], bool] = lambda _: True) -> None:
        """`wants` returns whether the group of a name is wanted."""
        self._wants = wants
        self._missing = MissingGroups()
        self._members = MemberCounts()

    def reconnect(self) -> None:
        """Notes a new connection: a broker with the same number may be one that has been started anew."""
        self._missing.reconnect()
        self._members = MemberCounts()

    def find(self, connection: ClusterConnection, reading: ClusterReading) -> set[int]:
        """Adds groups, with their members, to `reading`; returns the brokers that did not answer."""
        silent = self._list(connection, reading)
        if reading.is_listed_in_full:
            self._find_unclear(connection, reading)
        else:
            self._missing.remember(reading.groups)
        self._count_members(connection, reading)
        return silent

    def _list(self, connection: ClusterConnection, reading: ClusterReading) -> set[int]:
        nodes, silent = sorted(connection.brokers), set[int]()
        connection.deadline.renew()
        for node, answer in zip(nodes, list_each(connection, nodes), strict=True):
            if isinstance(answer, KctlError):
                reading.is_listed_in_full = False
                reading.failed("groups", answer)
                if isinstance(answer, BrokerUnreachable):
                    silent.add(node)
            else:
                reading.groups.update((each.group, each) for each in answer if self._wants(each.group))
        if not reading.is_listed_in_full:  # of the groups that were not listed nothing else can be asked for
            for part in ("committed", "members"):
                reading.failed(part, reading.errors["groups"])
        return silent

    def _find_unclear(self, connection: ClusterConnection, reading: ClusterReading) -> None:
        """Finds out which groups that are on no list any more are gone. Blocks."""
        missing = self._missing.of(reading.groups)
        connection.deadline.renew()
        unclear = self._missing.unclear(reading.groups, describe_groups(connection, missing))
        connection.forget_coordinators(set(missing) - unclear.keys())
        reading.doubt(unclear)

    def _count_members(self, connection: ClusterConnection, reading: ClusterReading) -> None:
        described: dict[tuple[int, str], list[str]] = defaultdict(list)
        for group in reading.groups.values():
            if group.state in _NO_MEMBERS:
                reading.members[group.group] = 0
            else:
                described[group.coordinator, group.type or "classic"].append(group.group)
        connection.deadline.renew()
        for name, count in self._members.read(connection, described).items():
            if isinstance(count, KctlError):
                reading.failed("members", count)
            else:
                reading.members[name] = count
