"""The demo's producer: numbered messages at a steady rate, with an exact count of acknowledgements."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

TICK_SECONDS = 0.05
RUN = 16
"""Consecutive messages that go to one partition, as with Kafka's own partitioner (KIP-480). Otherwise, with many
partitions, each would be its own batch and cost a core."""
BLOCK_SECONDS = 5.0
"""How long a client call may wait for metadata or room, and so how late `stop` may take effect."""


class Producer(threading.Thread):
    """Produces until `stop`. Idempotent, so retries in the client create no duplicates."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, rate: float, value_bytes: int = 200
    ) -> None:
        super().__init__(name="kctl-demo-producer", daemon=True)
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._padding = "x" * value_bytes
        self._value_bytes = value_bytes
        self._stop_asked = threading.Event()
        self._flush_seconds = 30.0
        self._lock = threading.Lock()
        self._acknowledged: Counter[TopicPartition] = Counter()
        self._sent = 0
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=20,
            max_block_ms=int(BLOCK_SECONDS * 1000),
            client_id="kctl-demo",
        )

    @property
    def acknowledged(self) -> dict[TopicPartition, int]:
        with self._lock:
            return dict(self._acknowledged)

    @property
    def total(self) -> int:
        with self._lock:
            return self._acknowledged.total()

    @property
    def not_acknowledged(self) -> int:
        """Messages in flight, or given up after `stop`."""
        with self._lock:
            return self._sent - self._acknowledged.total()

    def run(self) -> None:
        try:
            self._produce()
        except RuntimeError:  # kafka-python raises it for a client that `stop(0)` has closed
            if not self._stop_asked.is_set():
                raise

    def _produce(self) -> None:
        self._await_topic()
        sent, started = 0, time.monotonic()
        while not self._stop_asked.wait(TICK_SECONDS):
            due = int((time.monotonic() - started) * self._rate)
            for number in range(sent, due):
                if self._stop_asked.is_set():
                    break
                self._send(number)
            sent = max(sent, due)
        with suppress(KafkaError):  # the audit counts messages that are not acknowledged by then
            self._producer.flush(self._flush_seconds)

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Waits up to this long for acknowledgements. Use 0 for a broker that has ended."""
        self._flush_seconds = timeout_seconds
        self._stop_asked.set()
        if self.is_alive():
            self.join(timeout_seconds)
        try:
            self._producer.close(timeout=min(timeout_seconds, 5.0))
        # raised by its flush when brokers do not answer: kafka-python then leaves its thread running
        except KafkaError:
            self._producer._sender.force_close()  # noqa: SLF001 - it has no other name for giving up
            with suppress(KafkaError):
                self._producer.close(timeout=5)

    def _await_topic(self) -> None:
        """A message without metadata would be given up."""
        while not self._stop_asked.is_set():
            with suppress(KafkaError):
                if self._producer.partitions_for(self._topic):
                    return

    def _send(self, number: int) -> None:
        text = json.dumps({"number": number, "at": time.time()})
        value = (text + self._padding)[: self._value_bytes].encode()
        partition = number // RUN % self._partitions
        with self._lock:
            self._sent += 1
        with suppress(KafkaError):  # no metadata, or no room, within max.block.ms
            future = self._producer.send(self._topic, value, key=str(number).encode(), partition=partition)
            future.add_callback(self._on_success)

    def _on_success(self, metadata: object) -> None:
        with self._lock:
            self._acknowledged[TopicPartition(metadata.topic, metadata.partition)] += 1  # type: ignore[attr-defined]
