"""The demo's producer: numbered messages at a steady rate, and an exact count of what the brokers acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

from kafka import KafkaProducer, TopicPartition

__all__ = ["Producer"]

TICK_SECONDS = 0.05


class Producer(threading.Thread):
    """Produces until `stop`. Idempotent, so a retry inside the client puts nothing into the topic twice."""

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
        self._lock = threading.Lock()
        self._acknowledged: Counter[TopicPartition] = Counter()
        self._failed = 0
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=20,
            client_id="kctl-demo",
        )

    @property
    def acknowledged(self) -> dict[TopicPartition, int]:
        """Messages that the brokers have acknowledged, by partition."""
        with self._lock:
            return dict(self._acknowledged)

    @property
    def total(self) -> int:
        with self._lock:
            return self._acknowledged.total()

    @property
    def failed(self) -> int:
        """Messages that were given up by the client; they are not in the topic."""
        return self._failed

    def run(self) -> None:
        sent, started = 0, time.monotonic()
        while not self._stop_asked.wait(TICK_SECONDS):
            due = int((time.monotonic() - started) * self._rate)
            for number in range(sent, due):
                self._send(number)
            sent = max(sent, due)
        self._producer.flush()

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """No further message; waits for the acknowledgement of those on the way."""
        self._stop_asked.set()
        self.join(timeout_seconds)
        self._producer.close(timeout=5)

    def _send(self, number: int) -> None:
        text = json.dumps({"number": number, "at": time.time()})
        value = (text + self._padding)[: self._value_bytes].encode()
        future = self._producer.send(self._topic, value, key=str(number).encode(), partition=number % self._partitions)
        future.add_callback(self._on_success)
        future.add_errback(self._on_failure)

    def _on_success(self, metadata: object) -> None:
        with self._lock:
            self._acknowledged[TopicPartition(metadata.topic, metadata.partition)] += 1  # type: ignore[attr-defined]

    def _on_failure(self, _error: BaseException) -> None:
        with self._lock:
            self._failed += 1
