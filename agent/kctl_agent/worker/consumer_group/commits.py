"""The group's committed offsets as this worker knows them, and partitions whose commit the broker rejects."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import (
    InvalidCommitOffsetSizeError,
    KafkaError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

PARTITION_ERRORS: dict[int, type[KafkaError]] = {
    error.errno: error
    for error in (
        InvalidCommitOffsetSizeError,
        OffsetMetadataTooLargeError,
        TopicAuthorizationFailedError,
        UnknownTopicOrPartitionError,
    )
}
"""Errors that concern one partition. Others concern the member, the group or its coordinator."""


class PendingCommit(dict[TopicPartition, OffsetAndMetadata]):
    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        super().__init__(offsets)
        self.refused: dict[TopicPartition, type[KafkaError]] = {}


def keep_partition_errors(consumer: Any) -> None:
    """Makes `consumer` collect a commit's `PARTITION_ERRORS` in `PendingCommit.refused` and raise only other errors.
    Without this, kafka-python 3.0.12 raises only the first error of a response."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to see the response
    handle = coordinator._handle_offset_commit_response  # noqa: SLF001

    def handle_offset_commit_response(offsets: Any, send_time: float, response: Any) -> None:
        if isinstance(offsets, PendingCommit):
            offsets.refused = _take_out(response)
        handle(offsets, send_time, response)

    coordinator._handle_offset_commit_response = handle_offset_commit_response  # noqa: SLF001


def _take_out(response: Any) -> dict[TopicPartition, type[KafkaError]]:
    refused = {}
    for topic in response.topics:
        for partition in topic.partitions:
            if error := PARTITION_ERRORS.get(partition.error_code):
                refused[TopicPartition(topic.name, partition.partition_index)] = error
                partition.error_code = 0
    return refused


def refusal(errors: Mapping[TopicPartition, type[KafkaError]]) -> str:
    named = ", ".join(f"{tp.topic}-{tp.partition} ({errors[tp].__name__})" for tp in sorted(errors))
    return f"the offsets of {named} cannot be committed"


QUIET_SECONDS = 1.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
"""Back-off of a partition whose commit the broker rejects; the others are committed meanwhile."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _Refused:
    times: int
    retry_at: float


class Commits:
    """Committed offsets and rejected partitions. Any thread may read `known`, which is replaced, never mutated."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._changed_at = time.monotonic()
        self.refused: dict[TopicPartition, _Refused] = {}

    def due(self, positions: Offsets) -> dict[TopicPartition, int]:
        return {tp: position for tp, position in positions.items() if self.known.get(tp) != position}

    @property
    def is_quiet(self) -> bool:
        return time.monotonic() - self._changed_at >= QUIET_SECONDS

    def answered(self, offsets: Offsets, refused: Collection[TopicPartition], now: float) -> None:
        """Records the answer to a commit: all `offsets` are committed except those of `refused`. Main thread only."""
        self.done({tp: offset for tp, offset in offsets.items() if tp not in refused})
        still = {tp: before for tp, before in self.refused.items() if tp not in offsets}
        for tp in refused:
            times = self.refused[tp].times + 1 if tp in self.refused else 1
            still[tp] = _Refused(times, now + RETRY_SECONDS[min(times, len(RETRY_SECONDS)) - 1])
        self.refused = still

    def waiting(self, assigned: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        """Returns the rejected partitions in back-off. Forgets partitions that are no longer assigned."""
        self.refused = {tp: refused for tp, refused in self.refused.items() if tp in assigned}
        return frozenset(tp for tp, refused in self.refused.items() if now < refused.retry_at)

    def done(self, offsets: Offsets) -> None:
        """Records committed offsets. Never blocks, because kafka-python's I/O thread calls it too."""
        self.known = {**self.known, **offsets}
        self._changed_at = time.monotonic()
