"""A shadow group: a consumer group without members whose committed offsets show ordinary tools how far an application
has read. Spark itself commits nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from kctl_agent.kafka.clients import forget_coordinators

_EVERYTHING_SECONDS: Final = 86_400.0
"""Brokers drop offsets after `offsets.retention.minutes`, so all are committed again this often."""
_EMPTY: Final = frozenset({"Empty", "Dead", ""})
Partition = tuple[str, int]


class ShadowGroup:
    """Commits an application's positions to its shadow group. For one thread."""

    def __init__(self, admin: Any, group: str) -> None:
        self._admin = admin
        self._group = group
        self._done: dict[Partition, int] = {}
        self._all_since = time.monotonic()

    def commit(self, positions: Mapping[Partition, int]) -> dict[Partition, int] | None:
        """Commits changed positions and returns the group's offsets; None while the group has a member, which commits
        itself. Raises KafkaError."""
        from kafka.errors import KafkaError

        try:
            return self._commit(positions)
        except KafkaError:
            forget_coordinators(self._admin)
            raise

    def _commit(self, positions: Mapping[Partition, int]) -> dict[Partition, int] | None:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import NoError

        if time.monotonic() - self._all_since >= _EVERYTHING_SECONDS:
            self._all_since = time.monotonic()
            self._done.clear()
        due = {partition: offset for partition, offset in positions.items() if self._done.get(partition) != offset}
        if not due:
            return dict(self._done)
        described = self._admin.describe_groups([self._group])[self._group]
        if str(described.get("group_state", "")) not in _EMPTY:
            self._done.clear()
            return None
        outcomes = self._admin.alter_group_offsets(
            self._group, {TopicPartition(*each): OffsetAndMetadata(offset, "", -1) for each, offset in due.items()}
        )
        for error in outcomes.values():
            if error is not NoError:
                raise error(f"the offsets of group {self._group} were not committed")
        self._done.update(due)
        return dict(self._done)
