"""Tracks the delivery of messages: pace, acknowledgements, reasons for retries."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class PartitionReport:
    messages: int = 0
    first: int | None = None
    last: int | None = None
    """None with `acks` 0, which reports no offset."""


class DeliveryReport:
    """Counts acknowledged and failed messages. The producer's thread writes it, any thread reads it."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionReport] = {}
        self.bytes = 0
        self.failed = 0
        self.first_failure: BaseException | None = None

    @property
    def messages(self) -> int:
        return sum(partition.messages for partition in list(self._partitions.values()))

    def partitions(self) -> dict[int, PartitionReport]:
        return dict(sorted(self._partitions.items()))

    def add(self, metadata: Any, size: int) -> None:
        """`metadata` is kafka-python's RecordMetadata."""
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
        self.failed += 1
        if self.first_failure is None:
            self.first_failure = error


class RetryReasons(logging.Handler):
    """Finds the reasons of retries in the producer's log, because after its time limit the producer reports only a
    time-out. `close` it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: BaseException | None = None
        self._log = logging.getLogger("kafka.producer.sender")
        self._former_level = self._log.level
        self._log.setLevel(logging.WARNING)  # even if this process has silenced kafka-python
        self._log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        from kafka import errors

        for argument in record.args if isinstance(record.args, tuple) else ():
            kind = getattr(errors, str(argument), None)
            if isinstance(kind, type) and issubclass(kind, errors.BrokerResponseError):
                self.last = kind()

    def close(self) -> None:
        self._log.removeHandler(self)
        self._log.setLevel(self._former_level)
        super().close()


class Pace:
    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = 0
        self._pause = threading.Event()

    def wait(self) -> None:
        if self._rate is not None:
            left = self._began + self._count / self._rate - time.monotonic()
            if left > 0:
                self._pause.wait(left)
            self._count += 1
