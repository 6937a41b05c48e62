"""The delivery report of a producer: what the brokers acknowledged, by partition, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DeliveryReport", "PartitionReport"]


@dataclass(slots=True)
class PartitionReport:
    """The acknowledged messages of one partition."""

    messages: int = 0
    first: int | None = None
    last: int | None = None
    """The last offset; None with `acks` 0, as no broker reports it."""


class DeliveryReport:
    """Counts of acknowledged and failed messages. Written by the producer's thread, read by any."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionReport] = {}
        self.bytes = 0
        """Bytes of keys and values that were acknowledged."""
        self.failed = 0
        self.first_failure: BaseException | None = None

    @property
    def messages(self) -> int:
        """The number of acknowledged messages."""
        return sum(partition.messages for partition in list(self._partitions.values()))

    def partitions(self) -> dict[int, PartitionReport]:
        return dict(sorted(self._partitions.items()))

    def add(self, metadata: Any, size: int) -> None:
        """Counts an acknowledged message; `metadata` is kafka-python's RecordMetadata."""
        partition = self._partitions.get(metadata.partition)
        if partition is None:
            partition = self._partitions[metadata.partition] = PartitionReport()
        partition.messages += 1
        if metadata.offset >= 0:
            if partition.first is None:
                partition.first = metadata.offset
            partition.last = metadata.offset
        self.bytes += size

    def add_failure(self, error: BaseException) -> None:
        """Counts a message that has failed for good."""
        self.failed += 1
        if self.first_failure is None:
            self.first_failure = error
