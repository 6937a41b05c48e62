"""Which of the groups that brokers have listed before are gone, and which only seem so while their coordinator moves.

A broker lists what it coordinates now, and reports no error for what nobody does. A new coordinator has read its log to
the end, but knows only of what is below the high watermark until its followers have fetched once more: on a cluster of
three, groups were denied for two seconds after a failover, by list, description and offsets alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kctl.errors import GroupMissing, KctlError
from kctl.kafka.connection import Connection
from kctl.kafka.groups import Group, ListedGroup, describe_groups

__all__ = ["MissingGroups"]

_GONE_AFTER_SECONDS = 30.0
"""A follower that holds up the high watermark is out of the in-sync replicas by then (replica.lag.time.max.ms)."""


class MissingGroups:
    """Not thread-safe; what it remembers outlives connections."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._coordinators: dict[str, int | None] = {}
        """Of each group that is not gone, the broker that lists it poll after poll, over one connection; None: it has
        been missing, or the connection is new."""
        self._denied_since: dict[str, float] = {}

    def reconnect(self) -> None:
        """From now on a broker with the same number may be one that has been started anew."""
        self._coordinators = dict.fromkeys(self._coordinators)

    def remember(self, listed: Mapping[str, ListedGroup]) -> None:
        """What some of the brokers have listed, when others have not answered."""
        self._coordinators |= {name: group.coordinator for name, group in listed.items()}

    def find(self, connection: Connection, listed: Mapping[str, ListedGroup]) -> dict[str, KctlError | None]:
        """The groups that every broker leaves off its list and that may be there all the same, each with the error of
        its coordinator; None where that denies it. All others that are missing are gone: denied by the broker that has
        listed them until now, or for 30 s. Blocks."""
        missing = sorted(self._coordinators.keys() - listed.keys())
        found: dict[str, KctlError | None] = {}
        connection.deadline.renew()
        for group in describe_groups(connection, missing):
            if not isinstance(group.error, GroupMissing):
                self._denied_since.pop(group.group, None)
                found[group.group] = group.error or KctlError(f"group {group.group}: no broker has listed it")
            elif not self._is_gone(group):
                found[group.group] = None
        connection.forget_coordinators(set(missing) - found.keys())
        self._denied_since = {name: at for name, at in self._denied_since.items() if name in found}
        self._coordinators = dict.fromkeys(found)
        self.remember(listed)
        return found

    def _is_gone(self, group: Group) -> bool:
        if self._coordinators[group.group] == group.coordinator:
            return True
        now = self._clock()
        return now - self._denied_since.setdefault(group.group, now) >= _GONE_AFTER_SECONDS
