"""How far the logs of whole topics reach, also of partitions that no group has committed. No clock, no I/O.

For the names of other exporters alone (`exporter.compatible_names`); of what groups have committed, `known` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kctl.groups.snapshot import TopicLogs
from kctl.kafka.cluster_reading import ClusterReading
from kctl.kafka.layout import Partition

__all__ = ["WholeTopics"]


@dataclass(frozen=True, slots=True)
class _Log:
    """Reported at `at`."""

    at: float
    end: int
    start: int | None


class WholeTopics:
    """Not thread-safe. All times are those of the caller's monotonic clock."""

    def __init__(self) -> None:
        self._logs: dict[Partition, _Log] = {}
        self._counts: Mapping[str, int] = {}

    def add(self, reading: ClusterReading, at: float) -> None:
        """What a poll that was begun `at` has brought; what it has not keeps its last values."""
        self._counts = counts = reading.partitions
        self._logs = {key: log for key, log in self._logs.items() if key[1] < counts.get(key[0], 0)}
        for key, end in reading.end.items():
            old = self._logs.get(key)
            self._logs[key] = _Log(at, end, reading.start.get(key, None if old is None else old.start))

    def topics(self, not_before: float) -> dict[str, TopicLogs]:
        """Those that groups read, without values that are older."""
        found: dict[str, dict[int, tuple[int, int | None]]] = {topic: {} for topic in self._counts}
        for (topic, partition), log in sorted(self._logs.items()):
            if log.at >= not_before and topic in found:
                found[topic][partition] = log.end, log.start
        return {topic: TopicLogs(self._counts[topic], logs) for topic, logs in found.items()}
