"""Finds all groups, or groups by name, for a `ClusterReader`. Detects which groups are gone.

A new coordinator may report an existing group as missing. It loads groups from `__consumer_offsets` only up to the high
watermark. It learns the current high watermark only after its followers have fetched.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from kctl.errors import BrokerUnreachable, GroupMissing, KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, ListedGroup, MemberCounts, describe_groups, list_each
from kctl.kafka.polls.cluster_reading import ClusterReading

_GONE_AFTER_SECONDS = 30.0
"""After this time a follower that delays the high watermark is out of sync (replica.lag.time.max.ms)."""
_ABSENT_SECONDS = 5.0
"""For this long a missing group counts as missing without new requests; asking takes five."""


class MissingGroups:
    """Decides whether a group that its coordinator cannot find still exists. Remembers groups across connections."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._coordinators: dict[str, int | None] = {}
        """The coordinator of each group over this connection. None if the group was missing or not yet seen."""
        self._denied_since: dict[str, float] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Remembers groups that no broker has listed yet. They count as gone only after 30 s of GroupMissing."""
        self._coordinators = dict.fromkeys(names) | self._coordinators

    def reconnect(self) -> None:
        """Forgets the coordinators, so that groups count as gone only after 30 s of GroupMissing. A restarted
        coordinator keeps its broker id but may not have loaded its groups yet."""
        self._coordinators = dict.fromkeys(self._coordinators)

    def remember(self, listed: Mapping[str, ListedGroup]) -> None:
        self._coordinators |= {name: group.coordinator for name, group in listed.items()}

    def of(self, listed: Mapping[str, ListedGroup]) -> list[str]:
        return sorted(self._coordinators.keys() - listed.keys())

    def unclear(self, listed: Mapping[str, ListedGroup], missing: Iterable[Group]) -> dict[str, KctlError | None]:
        """Returns the `missing` groups that may still exist, with their errors, or None for GroupMissing. Leaves out a
        group with GroupMissing in three cases: it was neither listed nor passed to `expect`, its coordinator is the
        broker that last listed it, or the error has lasted for 30 s."""
        unclear: dict[str, KctlError | None] = {}
        for group in missing:
            if not isinstance(group.error, GroupMissing):
                self._denied_since.pop(group.group, None)
                unclear[group.group] = group.error or KctlError(f"group {group.group}: no broker has listed it")
            elif not self._is_gone(group):
                unclear[group.group] = None
        self._denied_since = {name: at for name, at in self._denied_since.items() if name in unclear}
        self._coordinators = {name: None for name in unclear if name in self._coordinators}
        self.remember(listed)
        return unclear

    def _is_gone(self, group: Group) -> bool:
        if self._coordinators.get(group.group, group.coordinator) == group.coordinator:
            return True
        now = self._clock()
        return now - self._denied_since.setdefault(group.group, now) >= _GONE_AFTER_SECONDS


class AllGroups:
    """Finds all groups of a cluster, for one `ClusterReader`. Not thread-safe."""

    def __init__(self, wants: Callable[[str], bool] = lambda _: True) -> None:
        self._wants = wants
        self._missing = MissingGroups()
        self._members = MemberCounts()

    def reconnect(self) -> None:
        self._missing.reconnect()
        self._members = MemberCounts()

    def find(self, connection: ClusterConnection, reading: ClusterReading) -> set[int]:
        """Finds the groups and adds them to `reading`. Returns the brokers that did not answer. Raises KctlError."""
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
        if not reading.is_listed_in_full:  # unlisted groups may be on a silent broker
            for part in ("committed", "members"):
                reading.failed(part, reading.errors["groups"])
        return silent

    def _find_unclear(self, connection: ClusterConnection, reading: ClusterReading) -> None:
        missing = self._missing.of(reading.groups)
        connection.deadline.renew()
        unclear = self._missing.unclear(reading.groups, describe_groups(connection, missing))
        connection.forget_coordinators(set(missing) - unclear.keys())
        reading.doubt(unclear)

    def _count_members(self, connection: ClusterConnection, reading: ClusterReading) -> None:
        described: dict[tuple[int, str], list[str]] = defaultdict(list)
        for group in reading.groups.values():
            if group.state in ("Empty", "Dead"):
                reading.members[group.group] = 0
            else:
                described[group.coordinator, group.type or "classic"].append(group.group)
        connection.deadline.renew()
        for name, count in self._members.read(connection, described).items():
            if isinstance(count, KctlError):
                reading.failed("members", count)
            else:
                reading.members[name] = count


class NamedGroups:
    """Finds groups by name, for one `ClusterReader`. Not thread-safe. A group that does not exist is read as `Dead`."""

    def __init__(self, names: Iterable[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = sorted(set(names))
        self._clock = clock
        self._missing = MissingGroups(clock=clock)
        self._is_first = True
        self._absent: dict[str, tuple[ListedGroup, float]] = {}
        """Missing groups, each with the time of the answer."""

    def reconnect(self) -> None:
        self._missing.reconnect()
        self._absent.clear()

    def find(self, connection: ClusterConnection, reading: ClusterReading) -> set[int]:
        """Finds the groups and adds them to `reading`. Returns the brokers that did not answer. Raises KctlError."""
        now = self._clock()
        self._absent = {n: (group, at) for n, (group, at) in self._absent.items() if now - at < _ABSENT_SECONDS}
        if self._is_first and len(connection.brokers) > 1:  # a single broker has no follower to wait for
            self._missing.expect(self._names)
        self._is_first = False
        connection.deadline.renew()
        described = describe_groups(connection, [name for name in self._names if name not in self._absent])
        for group in described:
            if group.error is None and group.coordinator is not None:
                reading.groups[group.group] = _listed(group, group.coordinator, group.state)
                if group.members is not None:
                    reading.members[group.group] = len(group.members)
                    if group.state == "Stable" or not group.members:
                        reading.assigned[group.group] = tuple((m.client_id, m.assigned or {}) for m in group.members)
        self._judge(reading, [group for group in described if group.error is not None], now)
        return {
            group.coordinator
            for group in described
            if isinstance(group.error, BrokerUnreachable) and group.coordinator is not None
        }

    def _judge(self, reading: ClusterReading, missing: list[Group], now: float) -> None:
        unclear = self._missing.unclear(reading.groups, missing)
        reading.doubt(unclear)
        for group in missing:
            if group.group not in unclear and group.coordinator is not None:
                self._absent[group.group] = _listed(group, group.coordinator, "Dead"), now
        for name, (absent, _) in self._absent.items():
            reading.groups[name], reading.members[name] = absent, 0


def _listed(group: Group, coordinator: int, state: str | None) -> ListedGroup:
    return ListedGroup(group.group, group.type, state, group.protocol, coordinator)
