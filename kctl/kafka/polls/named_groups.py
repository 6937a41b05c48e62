"""Groups by name, such as a fleet's own: FindCoordinator once, and Describe; nothing is listed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kctl.errors import BrokerUnreachable
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, ListedGroup, describe_groups
from kctl.kafka.polls.cluster_reading import ClusterReading
from kctl.kafka.polls.group_sources import MissingGroups

_ABSENT_SECONDS = 5.0
"""Seconds for which a missing group is taken for what it was: to be sure takes five requests."""


class _Absent(NamedTuple):
    group: ListedGroup
    described_at: float


class NamedGroups:
    """Groups by name. For one `ClusterReader`, on its thread. One that does not exist is `Dead`, without members."""

    def __init__(self, names: Iterable[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = sorted(set(names))
        self._clock = clock
        self._missing = MissingGroups(clock=clock)
        self._is_first = True
        self._absent: dict[str, _Absent] = {}

    def reconnect(self) -> None:
        """Notes a new connection: a broker with the same number may be one that has been started anew."""
        self._missing.reconnect()
        self._absent.clear()

    def find(self, connection: ClusterConnection, reading: ClusterReading) -> set[int]:
        """Adds groups, with their members, to `reading`; returns the brokers that did not answer. Raises KctlError: no
        broker did."""
        now = self._clock()
        self._absent = {n: each for n, each in self._absent.items() if now - each.described_at < _ABSENT_SECONDS}
        if self._is_first and len(connection.brokers) > 1:  # the only broker has no follower to wait for
            self._missing.expect(self._names)
        self._is_first = False
        connection.deadline.renew()
        described = describe_groups(connection, [name for name in self._names if name not in self._absent])
        for group in described:
            if group.error is None and group.coordinator is not None:
                reading.groups[group.group] = _listed(group, group.coordinator, group.state)
                if group.members is not None:
                    reading.members[group.group] = len(group.members)
        self._judge(reading, [group for group in described if group.error is not None], now)
        return {
            group.coordinator
            for group in described
            if isinstance(group.error, BrokerUnreachable) and group.coordinator is not None
        }

    def _judge(self, reading: ClusterReading, missing: list[Group], now: float) -> None:
        """Decides which of the groups that could not be described are gone."""
        unclear = self._missing.unclear(reading.groups, missing)
        reading.doubt(unclear)
        for group in missing:
            if group.group not in unclear and group.coordinator is not None:
                self._absent[group.group] = _Absent(_listed(group, group.coordinator, "Dead"), now)
        for name, absent in self._absent.items():
            reading.groups[name], reading.members[name] = absent.group, 0


def _listed(group: Group, coordinator: int, state: str | None) -> ListedGroup:
    return ListedGroup(group.group, group.type, state, group.protocol, coordinator)
