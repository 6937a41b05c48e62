"""Assigns the partitions to any number of workers, with the group's own assignor. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

from kctl.rows.columns import Partition, Reals, Rows

_STATELESS: dict[str, Any] = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
_MOST_ASKED = 200
"""The most partitions for which the assignor is called, which takes 10 ms; more count as dealt out in turn."""


class Shares:
    """Which worker would own each partition. Caches the answers of the assignor."""

    def __init__(self, assignor: str) -> None:
        self._assignor = assignor
        self._keys: tuple[Partition, ...] = ()
        self._owners: tuple[str | None, ...] = ()
        self._kept: dict[int, Rows] = {}

    def use(self, keys: tuple[Partition, ...], owners: tuple[str | None, ...]) -> None:
        if (keys, owners) != (self._keys, self._owners):
            self._keys, self._owners, self._kept = keys, owners, {}

    def largest(self, count: int, load: Reals) -> float:
        """Returns the load of the most loaded of `count` workers; `load` has the load of each partition."""
        return float(np.bincount(self.of_each(count), load).max(initial=0.0))

    def of_each(self, count: int) -> Rows:
        """Returns for each partition the index of its worker, if there are `count` workers."""
        if count not in self._kept:
            self._kept[count] = self._assigned(count)
        return self._kept[count]

    def _assigned(self, count: int) -> Rows:
        names = sorted({each for each in self._owners if each}, key=lambda name: (len(name), name))
        if len(names) == count and None not in self._owners:
            return np.array([names.index(each) for each in self._owners if each], np.intp)
        members = [*names, *(f"new-{number:09}" for number in range(count))][:count]
        if len(self._keys) > _MOST_ASKED:
            return np.arange(len(self._keys)) % count
        owner_of = self._asked(members)
        return np.array([owner_of[key] for key in self._keys], np.intp)

    def _asked(self, members: Sequence[str]) -> dict[Partition, int]:
        topics: dict[str, set[int]] = defaultdict(set)
        owned: dict[str | None, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, partition), owner in zip(self._keys, self._owners, strict=True):
            topics[topic].add(partition)
            owned[owner][topic].append(partition)
        cluster: Any = SimpleNamespace(topics=lambda: set(topics), partitions_for_topic=topics.get)
        joined: list[Any] = [
            SimpleNamespace(
                member_id=name,
                group_instance_id=None,
                metadata=SimpleNamespace(
                    topics=sorted(topics), user_data=StickyAssignorUserData(list(owned[name].items()), 1)
                ),
            )
            for name in members
        ]
        given = _STATELESS.get(self._assignor, StickyPartitionAssignor)().assign(cluster, joined)
        return {
            (topic, partition): number
            for number, name in enumerate(members)
            for topic, partitions in given[name].assigned_partitions
            for partition in partitions
        }
