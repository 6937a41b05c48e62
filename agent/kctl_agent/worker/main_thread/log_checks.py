"""Checks that stored records are still in the brokers' logs and in the storage. If not, the queries drain, and the next
query begins at the offsets that brokers and storage have."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import OffsetStore
from kctl_agent.worker.offsets.brokers import Brokers, BrokerView
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.pipeline import Pipeline

log = logging.getLogger("kctl_agent.worker")

STORAGE_CHECK_SECONDS = 5.0
"""Interval for a worker without a batch."""


class LogChecks:
    """Checks the running queries. For the main thread."""

    def __init__(self, pipeline: Pipeline, brokers: Brokers, storage: OffsetStore, progress: ReadProgress) -> None:
        self._pipeline = pipeline
        self._brokers = brokers
        self._storage = storage
        self._progress = progress
        self._compared: BrokerView | None = None
        self._check_at = 0.0

    def check(self, running: Mapping[TopicPartition, KafkaSource], view: BrokerView) -> None:
        self._compare_logs(running, view)
        self._check_storage()

    def _compare_logs(self, running: Mapping[TopicPartition, KafkaSource], view: BrokerView) -> None:
        """Drains the query after a truncation below its position. Asks a broker only after a change of leader."""
        if view is self._compared:
            return
        self._compared = view
        epochs = self._progress.epochs
        logs = {tp: seen for tp, seen in view.logs.items() if tp in running}
        try:
            diverged, unknown = self._brokers.divergences_of_each(epochs.known, logs)
        except KafkaError as error:
            log.debug("which log it is is not known yet: %s", error)
            return
        planned = self._pipeline.planned
        cut = {tp for tp, offset in diverged.items() if offset < planned.get(tp, offset)}
        if cut:
            self._pipeline.drain()
        epochs.observe({tp: seen for tp, seen in logs.items() if tp not in cut and tp not in unknown})

    def _check_storage(self) -> None:
        """Drains the query if the storage has lost messages; the next query reads them again."""
        if time.monotonic() < self._check_at or self._pipeline.batch_started_at is not None:
            return
        self._check_at = time.monotonic() + STORAGE_CHECK_SECONDS
        positions = self._pipeline.positions  # read before the stored offsets, which are never lower
        try:
            stored_offsets = self._storage.stored_offsets([tuple(tp) for tp in positions])
        except StorageError as error:
            log.debug("whether the storage has gone back is not known: %s", error)
            return
        if any(
            (stored := stored_offsets.get(tuple(tp))) is None or stored.next < position
            for tp, position in positions.items()
        ):
            self._pipeline.drain()
