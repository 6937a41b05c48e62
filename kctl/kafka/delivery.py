"""The delivery report of a producer: what the brokers acknowledged, by partition, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DeliveryReport", "PartitionReport"]


@dataclass(slots=True)
class PartitionReport:
    """What was acknowledged in one partition."""

    messages: int = 0
    first: int | None = None
    last: int | None = None
    """Offsets; None with `acks` 0, as no broker reports them."""


class DeliveryReport:
    """Written by the producer's thread, read by any."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionReport] = {}
        self.bytes = 0
        """Of keys and values that were acknowledged."""
        self.failed = 0
        self.first_failure: BaseException | None = None

    @property
    def messages(self) -> int:
        """How many were acknowledged."""
        return sum(partition.messages for partition in list(self._partitions.values()))

    def partitions(self) -> dict[int, PartitionReport]:
        return dict(sorted(self._partitions.items()))

    def add(self, metadata: Any, size: int) -> None:
        """One message is acknowledged; `metadata` is kafka-python's RecordMetadata."""
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
        """One message has failed for good."""
        self.failed += 1
        if self.first_failure is None:
            self.first_failure = error
