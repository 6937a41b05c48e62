"""Messages into a topic, and an exact account of what the brokers acknowledged.

kafka-python's producer does the work: idempotent unless `acks` is less than all, so a retry after a lost answer or a
change of leader puts nothing into the topic twice. It has no bound on what waits inside it; `Production` has one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.partitioner.sticky import StickyPartitioner
from kafka.record import MemoryRecordsBuilder

from kctl.errors import KctlError
from kctl.kafka.access import Access
from kctl.kafka.reasons import failure

__all__ = ["Pace", "PartitionAccount", "Production", "Sent", "batch_bytes"]

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_REQUEST_BYTES = 512 * 1024 * 1024
"""The broker's word on what is too large is the one that counts; the client's own bound (1 MB) is out of its way."""
_BATCH_BYTES = 256 * 1024
_WAITING_BYTES = 64 * 1024 * 1024
_OVERHEAD_BYTES = 100
"""About what a message takes in memory beside its key and value."""
_WAIT_SECONDS = 0.2
_MAGIC = 2
_REQUEST_MILLISECONDS = 10_000
"""A leader that does not answer is given up after so long, to look for another."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One acknowledged message; `offset` is None with `acks` 0, as nobody has said where it is."""

    partition: int
    offset: int | None
    timestamp: int


@dataclass(slots=True)
class PartitionAccount:
    """What was acknowledged in one partition."""

    messages: int = 0
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class _Account:
    partitions: dict[int, PartitionAccount] = field(default_factory=dict)
    failed: int = 0
    first_failure: BaseException | None = None


class Production:
    """A producer for one topic. `send` may wait for room; `finish` waits for every acknowledgement.

    `send`, `flush` and `finish` belong to one thread; the account is written by the producer's.
    """

    def __init__(
        self, access: Access, topic: str, *, acks: str, codec: str, timeout_seconds: float, is_bulk: bool
    ) -> None:
        """Raises KctlError: the brokers cannot be reached."""
        milliseconds = int(timeout_seconds * 1000)
        linger = min(20 if is_bulk else 0, milliseconds // 4)
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._acknowledged_bytes = 0
        self._account = _Account()
        self._complaints = _Complaints()
        try:
            self._producer = KafkaProducer(
                **access.client_settings(),
                client_id="kctl",
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=acks == "all",
                compression_type=None if codec == "none" else codec,
                partitioner=StickyPartitioner(),
                linger_ms=linger,
                batch_size=_BATCH_BYTES if is_bulk else 16384,
                delivery_timeout_ms=milliseconds,
                request_timeout_ms=max(min(milliseconds // 3, _REQUEST_MILLISECONDS), 1),
                max_block_ms=milliseconds,
                bootstrap_timeout_ms=milliseconds,
                max_request_size=_REQUEST_BYTES,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
        except Exception as error:  # of any of the client's parts
            raise failure(error, f"the brokers at {access.named}") from error

    def send(
        self, value: bytes | None, key: bytes | None, partition: int | None, headers: list[tuple[str, bytes]]
    ) -> Any:
        """Hand a message over; returns kafka-python's future of it.

        Raises:
            KctlError: it could not even be handed over.
        """
        size = len(value or b"") + len(key or b"") + _OVERHEAD_BYTES
        with self._room:
            if self._waiting_bytes > _WAITING_BYTES:
                self._room.wait_for(lambda: self._waiting_bytes < _WAITING_BYTES // 2, self._timeout_seconds)
            self._waiting_bytes += size
        try:
            future = self._producer.send(self._topic, value, key, headers or None, partition)
        except Exception as error:  # of any of the client's parts
            raise self._explained(error) from error
        future.add_callback(self._acknowledged, size)
        future.add_errback(self._failed, size)
        return future

    def sent(self, future: Any) -> Sent:
        """Wait for one message.

        Raises:
            KctlError: it was not acknowledged, and why.
        """
        try:
            self._producer.flush(self._timeout_seconds * 2)
            told = future.get(self._timeout_seconds)
        except Exception as error:  # of any of the client's parts
            raise self._explained(error) from error
        return Sent(told.partition, told.offset if told.offset >= 0 else None, told.timestamp)

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged up to now."""
        return sum(account.messages for account in list(self._account.partitions.values()))

    @property
    def problem(self) -> KctlError | None:
        """What became of the first message that failed; None when none did."""
        error = self._account.first_failure
        if error is None:
            return None
        told = self._explained(error)
        count = self._account.failed
        return type(told)(f"{count} message{'s' * (count > 1)} not acknowledged: {told}")

    @property
    def acknowledged_bytes(self) -> int:
        """How many bytes of keys and values were acknowledged up to now."""
        return self._acknowledged_bytes

    def finish(self, while_waiting: Callable[[], None] | None = None) -> dict[int, PartitionAccount]:
        """Wait until every message is acknowledged or has failed; what was acknowledged, by partition.

        `while_waiting` is called several times a second.
        """
        deadline = time.monotonic() + self._timeout_seconds * 2
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                self._producer.flush(left if while_waiting is None else min(left, _WAIT_SECONDS))
                return dict(sorted(self._account.partitions.items()))
            except Exception as error:  # of any of the client's parts
                if while_waiting is None or not isinstance(error, KafkaTimeoutError) or time.monotonic() >= deadline:
                    raise self._explained(error) from error
            while_waiting()

    def close(self) -> None:
        self._producer.close(timeout=1)
        self._complaints.close()

    def __enter__(self) -> Production:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acknowledged(self, size: int, told: Any) -> None:
        account = self._account.partitions.get(told.partition)
        if account is None:
            account = self._account.partitions[told.partition] = PartitionAccount()
        account.messages += 1
        if told.offset >= 0:
            if account.first is None:
                account.first = told.offset
            account.last = told.offset
        self._acknowledged_bytes += size - _OVERHEAD_BYTES
        self._left(size)

    def _failed(self, size: int, error: BaseException) -> None:
        self._account.failed += 1
        if self._account.first_failure is None:
            self._account.first_failure = error
        self._left(size)

    def _left(self, size: int) -> None:
        self._waiting_bytes -= size  # one thread does this; a `send` that reads it late only waits a little longer
        if self._waiting_bytes < _WAITING_BYTES // 2 <= self._waiting_bytes + size:
            with self._room:
                self._room.notify()

    def _explained(self, error: BaseException) -> KctlError:
        """A message that waited in vain was refused for a reason, which only the client's log tells."""
        return failure(self._complaints.last or error, f"topic {self._topic}")


def batch_bytes(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]], codec: str) -> int:
    """The size of the batch that such a message travels in, when it travels alone."""
    builder = MemoryRecordsBuilder(_MAGIC, _CODECS[codec], _REQUEST_BYTES)
    builder.append(None, key, value, headers)
    builder.close()
    size: int = builder.size_in_bytes()
    return size


class Pace:
    """Waits, so that there are at most `rate` messages a second; with None it never does."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = 0
        self._pause = threading.Event()

    def wait(self) -> None:
        """Call it before each message."""
        if self._rate is not None:
            left = self._began + self._count / self._rate - time.monotonic()
            if left > 0:
                self._pause.wait(left)
            self._count += 1


class _Complaints(logging.Handler):
    """Hears why the producer tries again. kafka-python says it in its log alone: when the time is over, the error is
    a timeout, whatever the broker had answered each time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: BaseException | None = None
        self._log = logging.getLogger("kafka.producer.sender")
        self._former_level = self._log.level
        self._log.setLevel(logging.WARNING)  # whoever in this process has silenced kafka-python as a whole
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
