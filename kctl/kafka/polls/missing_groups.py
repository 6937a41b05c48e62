"""Missing groups: which of those that brokers have had are gone, and which only seem so while their coordinator moves.

A broker lists what it coordinates now, and reports no error for what nobody does. A new coordinator has read its log to
the end, but knows only of what is below the high watermark until its followers have fetched once more: on a cluster of
three, groups were denied for two seconds after a failover, by list, description and offsets alike. A process that has
just been started has seen no other coordinator, and cannot know whether this one is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from kctl.errors import GroupMissing, KctlError
from kctl.kafka.groups import Group, ListedGroup

_GONE_AFTER_SECONDS = 30.0
"""A follower that holds up the high watermark is out of the in-sync replicas by then (replica.lag.time.max.ms)."""


class MissingGroups:
    """Remembers groups and their coordinators, longer than a connection lasts. Not thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._coordinators: dict[str, int | None] = {}
        """Coordinators of groups that are not gone: the broker that has a group poll after poll, over one connection;
        None: it has been missing, or was never seen, or the connection is new."""
        self._denied_since: dict[str, float] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Groups may be there, although no broker has had them yet: what denies them may have just taken over."""
        self._coordinators = dict.fromkeys(names) | self._coordinators

    def reconnect(self) -> None:
        """Notes a new connection: a broker with the same number may be one that has been started anew."""
        self._coordinators = dict.fromkeys(self._coordinators)

    def remember(self, listed: Mapping[str, ListedGroup]) -> None:
        """Remembers the groups of some brokers, when others have not answered."""
        self._coordinators |= {name: group.coordinator for name, group in listed.items()}

    def of(self, listed: Mapping[str, ListedGroup]) -> list[str]:
        """Returns the groups that were there, and are not among those that all brokers have now."""
        return sorted(self._coordinators.keys() - listed.keys())

    def unclear(self, listed: Mapping[str, ListedGroup], missing: Iterable[Group]) -> dict[str, KctlError | None]:
        """Returns those of the `missing`, as their coordinators have just described them, that may be there all the
        same, each with its error; None where its coordinator denies it. The others are gone: denied by the broker that
        has had them until now, or for 30 s, or neither there before nor expected."""
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
