"""Commits stored offsets to the group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.worker.consumer_group.commits import refusal
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.stats import WorkerStats


@dataclass(eq=False)
class Committer:
    """Commits stored offsets. For the main thread."""

    _membership: Membership
    _progress: ReadProgress
    _stats: WorkerStats
    _describe: Callable[[KafkaError, str], str]

    def commit(self, positions: Mapping[TopicPartition, int], now: float) -> None:
        """Commits what is due; failures are retried in the next turn. Raises MemberLost, MemberFenced."""
        commits, epochs = self._progress.commits, self._progress.epochs
        waiting = commits.waiting(self._membership.partitions, now)
        positions = {tp: position for tp, position in positions.items() if tp not in waiting}
        ends = commits.due(positions)
        if not ends and commits.is_quiet:
            ends = epochs.uncommitted(positions)
        if not ends or self._membership.is_rebalancing:
            return
        try:
            refused = self._membership.commit(ends)
        except KafkaError as error:
            text = self._describe(error, f"offsets of {topics_of(ends)} are stored, not yet committed")
            self._stats.failing("commit", text, "brokers")
        else:
            self._committed(ends, refused, now)

    def _committed(
        self, ends: Mapping[TopicPartition, int], refused: Mapping[TopicPartition, type[KafkaError]], now: float
    ) -> None:
        self._progress.commits.answered(ends, refused, now)
        self._progress.epochs.committed(ends.keys() - refused.keys())
        if refused:
            self._stats.failing("commit", f"{refusal(refused)}; the other partitions are")
        elif not self._progress.commits.is_refused:
            self._stats.works("commit")


def topics_of(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({tp.topic for tp in partitions}))
