"""Log truncation, detected by leader epochs (KIP-320): whether the log that is led now is still the one that was read.

A log that was truncated and has grown past the position again has an end like any other. But a new leader knows how far
its log goes that was written up to an older epoch: if that is less than the older leader once reported, what lay
between is gone. Pure. What is compared was reported by leaders: Spark does not hand over the epochs of records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class LogSeen:
    """A leader epoch, and the log end that its leader has reported; the log may go further by now."""

    epoch: int
    end: int

    def is_newer_than(self, before: LogSeen | None) -> bool:
        """Whether another leader has reported this end since: the log may be another one."""
        return before is not None and self.epoch > before.epoch


def divergence(before: LogSeen, end_of_epoch: int | None) -> int | None:
    """The offset from which on a log differs from the one seen before; None: nowhere, or unknown. `end_of_epoch`: where
    the log ends that was written up to the epoch of `before`; negative: unknown."""
    if end_of_epoch is None or end_of_epoch < 0 or end_of_epoch >= before.end:
        return None
    return end_of_epoch


class Epochs:
    """The last log end and leader epoch that was seen of each partition, for as long as it stays with this worker:
    another owner may have dealt with a truncation. `began`, `observe` and `committed` are for one thread."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, LogSeen] = {}
        self._committed: dict[TopicPartition, LogSeen] = {}
        self._given_up: frozenset[TopicPartition] = frozenset()

    @property
    def known(self) -> dict[TopicPartition, LogSeen]:
        """Returns the logs of the partitions that have been with this worker since."""
        return {tp: seen for tp, seen in self._seen.items() if tp not in self._given_up}

    def began(self, found: Mapping[TopicPartition, LogSeen | None]) -> None:
        """Begins to read partitions, in the logs that were found; whatever was known before has been compared."""
        self._seen = {tp: seen for tp, seen in {**self._seen, **found}.items() if seen is not None}
        self._given_up -= found.keys()

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that go to another member."""
        self._given_up |= frozenset(partitions)

    def observe(self, logs: Mapping[TopicPartition, LogSeen]) -> None:
        """Takes in newer ends of the logs that are read; what an older leader reports counts for nothing."""
        newer = {tp: log for tp, log in logs.items() if (before := self._seen.get(tp)) is None or log > before}
        self._seen = {**self._seen, **newer}

    def seen(self, tp: TopicPartition) -> LogSeen | None:
        """Returns what is committed in the note of this partition. Not as the `committed_leader_epoch`: that is the
        epoch of the last record below the offset, and other clients would take a lower one for a truncation."""
        return self._seen.get(tp)

    def committed(self, partitions: Collection[TopicPartition]) -> None:
        """Records committed notes. A little more may have been seen meanwhile; then it is uncommitted again."""
        self._committed = {**self._committed, **{tp: self._seen[tp] for tp in partitions if tp in self._seen}}

    def uncommitted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns positions whose committed notes have an older log end, as the last one of a flow mostly has."""
        return {
            tp: position
            for tp, position in positions.items()
            if (seen := self._seen.get(tp)) is not None
            and (noted := self._committed.get(tp)) is not None
            and noted.end < position <= seen.end
        }
