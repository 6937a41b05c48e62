"""Sends messages to a topic at a given rate, and counts the messages that brokers acknowledged in each partition.

With `acks` all, kafka-python's producer is idempotent by default, so a retry creates no duplicates.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer, errors
from kafka.errors import KafkaTimeoutError
from kafka.partitioner.sticky import StickyPartitioner
from kafka.record import MemoryRecordsBuilder

from kctl.errors import KctlError
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import failure

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_REQUEST_BYTES = 512 * 1024 * 1024
"""Far above the client's usual 1 MB, so that the broker's limit decides."""
_WAITING_BYTES = 64 * 1024 * 1024
_OVERHEAD_BYTES = 100
_MAGIC = 2


@dataclass(frozen=True, slots=True)
class Sent:
    partition: int
    offset: int | None
    timestamp: int


@dataclass(slots=True)
class PartitionReport:
    messages: int = 0
    first: int | None = None
    last: int | None = None  # None with `acks` 0, which reports no offset


class DeliveryReport:
    """Counts acknowledged and failed messages. The producer's thread counts. Any thread may read the counts."""

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
    """Reads the producer's log to find the broker's error that caused the last retry. If a message is not delivered
    in time, the producer itself reports only a time-out. Call `close` at the end."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: BaseException | None = None
        self._log = logging.getLogger("kafka.producer.sender")
        self._former_level = self._log.level
        self._log.setLevel(logging.WARNING)  # even if this process has silenced kafka-python
        self._log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
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


class Production:
    """A producer for one topic and one thread. `send` waits if more than 64 MiB are not yet acknowledged."""

    def __init__(
        self,
        access: ClusterAccess,
        topic: str,
        *,
        acks: str,
        codec: str,
        timeout_seconds: float,
        is_bulk: bool,
        is_idempotent: bool = True,
    ) -> None:
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self.report = DeliveryReport()
        self._retry_reasons = RetryReasons()
        settings = _settings(acks, codec, int(timeout_seconds * 1000), is_bulk)
        settings["enable_idempotence"] = is_idempotent and acks == "all"
        try:
            self._producer = KafkaProducer(**access.client_settings(), **settings)
        except Exception as error:  # any part of the client may raise
            raise failure(error, f"the brokers at {access.named}") from error

    def send(
        self, value: bytes | None, key: bytes | None, partition: int | None, headers: list[tuple[str, bytes]]
    ) -> Any:
        """Sends one message and returns kafka-python's future. Raises KctlError."""
        size = len(value or b"") + len(key or b"") + _OVERHEAD_BYTES
        with self._room:
            if self._waiting_bytes > _WAITING_BYTES:
                self._room.wait_for(lambda: self._waiting_bytes < _WAITING_BYTES // 2, self._timeout_seconds)
            self._waiting_bytes += size
        try:
            future = self._producer.send(self._topic, value, key, headers or None, partition)
        except Exception as error:  # any part of the client may raise
            raise self.explained(error) from error
        future.add_callback(self._acknowledged, size)
        future.add_errback(self._failed, size)
        return future

    def sent(self, future: Any) -> Sent:
        """Waits until one message is acknowledged, and returns where it is stored. Raises KctlError."""
        try:
            self._producer.flush(self._timeout_seconds * 2)
            metadata = future.get(self._timeout_seconds)
        except Exception as error:  # any part of the client may raise
            raise self.explained(error) from error
        return Sent(metadata.partition, metadata.offset if metadata.offset >= 0 else None, metadata.timestamp)

    @property
    def problem(self) -> KctlError | None:
        error = self.report.first_failure
        if error is None:
            return None
        explained = self.explained(error)
        count = self.report.failed
        return type(explained)(f"{count} message{'s' * (count > 1)} not acknowledged: {explained}")

    def finish(self, while_waiting: Callable[[], None] | None = None) -> None:
        """Waits until every message is acknowledged or fails. Calls `while_waiting` every 0.2 s. Raises KctlError."""
        deadline = time.monotonic() + self._timeout_seconds * 2
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                self._producer.flush(left if while_waiting is None else min(left, 0.2))
                return
            except Exception as error:  # any part of the client may raise
                if while_waiting is None or not isinstance(error, KafkaTimeoutError) or time.monotonic() >= deadline:
                    raise self.explained(error) from error
            while_waiting()

    def close(self) -> None:
        self._producer.close(timeout=1)
        self._retry_reasons.close()

    def __enter__(self) -> Production:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acknowledged(self, size: int, metadata: Any) -> None:
        self.report.add(metadata, size - _OVERHEAD_BYTES)
        self._left(size)

    def _failed(self, size: int, error: BaseException) -> None:
        self.report.add_failure(error)
        self._left(size)

    def _left(self, size: int) -> None:
        self._waiting_bytes -= size  # only this thread writes; a `send` that reads an old value waits a bit longer
        if self._waiting_bytes < _WAITING_BYTES // 2 <= self._waiting_bytes + size:
            with self._room:
                self._room.notify()

    def explained(self, error: BaseException) -> KctlError:
        """Converts an error of kafka-python. Replaces a time-out by the error that caused the last retry, if any."""
        reason = self._retry_reasons.last if isinstance(error, KafkaTimeoutError) else None
        return failure(reason or error, f"topic {self._topic}")

    def forget_retries(self) -> None:
        self._retry_reasons.last = None


def _settings(acks: str, codec: str, milliseconds: int, is_bulk: bool) -> dict[str, Any]:
    return {
        "client_id": "kctl",
        "acks": "all" if acks == "all" else int(acks),
        "compression_type": None if codec == "none" else codec,
        "partitioner": StickyPartitioner(),
        "linger_ms": min(20 if is_bulk else 0, milliseconds // 4),
        "batch_size": 256 * 1024 if is_bulk else 16384,
        "delivery_timeout_ms": milliseconds,
        "request_timeout_ms": max(min(milliseconds // 3, 10_000), 1),  # then the client looks for another leader
        "max_block_ms": milliseconds,
        "bootstrap_timeout_ms": milliseconds,
        "max_request_size": _REQUEST_BYTES,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }


def batch_bytes(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]], codec: str) -> int:
    builder = MemoryRecordsBuilder(_MAGIC, _CODECS[codec], _REQUEST_BYTES)
    builder.append(None, key, value, headers)
    builder.close()
    size: int = builder.size_in_bytes()
    return size
