"""The streaming queries of a worker, which read assigned partitions from their start offsets and store batches.

Usually one query reads all partitions. A second query (`CarefulRun`) reads partitions that may contain bad records.
Each streaming query has a scratch checkpoint. Spark passes each batch to kctl on a Py4J callback thread
(`Run.put_batch`). kctl reads a batch's end offsets from the checkpoint's offset log, which Spark writes before it runs
the batch.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka import TopicPartition

from kctl_agent.errors import RegistryUnusable
from kctl_agent.process import deadline
from kctl_agent.replies.workers import UnreadPartition
from kctl_agent.spark.conf import STOP_SECONDS, is_local, limit_kept_consumers
from kctl_agent.spark.driver import Driver, DriverLost, EngineDriver, OwnDriver
from kctl_agent.storage.base import OffsetStore, Storage
from kctl_agent.worker.query.batch_failure import BatchFailure
from kctl_agent.worker.query.batch_put import BatchPut, BlockPut
from kctl_agent.worker.query.careful_search import CarefulSearch
from kctl_agent.worker.query.kafka_source import KafkaSource, kafka_range, kafka_source
from kctl_agent.worker.query.run import Batch, CarefulRun, Run, stop_queries
from kctl_agent.worker.query.transform import TransformFailed, code_version, forget_code, load_transform, ship_modules
from kctl_agent.worker.query.unreadable_records import unreadable_records
from kctl_agent.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kctl_agent.worker.query.executor_check import ExecutorCheck
    from kctl_agent.worker.query.requeue_put import RequeuePut
    from kctl_agent.worker.query.typed_rows import TypedRows

log = logging.getLogger(__name__)

_LEAST_STOP_SECONDS = 1.0  # a healthy JVM needs less to stop its queries


class Pipeline:
    """The queries of a worker. Only one thread at a time may use them."""

    def __init__(self, settings: WorkerSettings, storage: OffsetStore, on_batch: Callable[[Batch], None]) -> None:
        self.on_batch = on_batch
        self._settings = settings
        self._storage = storage
        self._runs: dict[frozenset[TopicPartition], Run] = {}
        """Runs by their partitions; replaced, never changed in place."""
        self._transform: Callable[[DataFrame], DataFrame] = load_transform(
            settings.pipeline.transform, settings.pipeline.import_dir
        )
        self.happened: Callable[[str, str], object] = lambda *_: None
        """Reports an event. For any thread."""
        self._typed = self._made_typed()
        self._requeue_put: RequeuePut | None = None
        self._executors: ExecutorCheck | None = None
        self._driver: Driver = (
            OwnDriver(settings.spark)
            if settings.spark is not None
            else EngineDriver(settings.run_dir, settings.name, settings.scratch_dir, self._with_code)
        )
        self._is_called = False
        self._is_checked = False
        self._search: CarefulSearch | None = None
        self.log_ends: Callable[[], Mapping[TopicPartition, int]] = dict
        """Log ends as the brokers reported them last, up to which a careful query may read. For any thread."""
        self.is_own_fault: Callable[[BatchFailure], bool] = lambda failure: not failure.is_storage
        """Whether the records caused a failure, as far as is known. For any thread."""

    def open(self) -> None:
        self._driver.open()
        if self._driver.session is not None:
            self._check_early()

    def connect(self) -> str | None:
        """Connects to Spark, and checks a new session. Returns the reason to wait, or None. Raises BootstrapError."""
        before = self._driver.session
        why = self._driver.connect()
        if why is None and self._driver.session is not before:
            self._is_checked = False
            try:
                self._check_early()
            except DriverLost as error:
                return str(error)
        return why if why is not None or self._executors is None else self._executors.why

    def _check_early(self) -> None:
        if self._settings.pipeline.transform and self._writes_from_executors:
            ship_modules(self._session().sparkContext, self._settings.pipeline.import_dir)
        try:
            self._check()
        except (TransformFailed, RegistryUnusable) as error:
            log.warning("%s", error)
        self._check_executors()

    def _check_executors(self) -> None:
        if self._executors is not None:
            self._executors.end()
            self._executors = None
        if not self._writes_from_executors:
            return
        from kctl_agent.storage.lake.storage import LakeStorage
        from kctl_agent.worker.query.executor_check import ExecutorCheck

        assert isinstance(self._storage, LakeStorage)
        self._executors = ExecutorCheck(self._session(), self._storage.folder, self._settings.name)

    @property
    def _writes_from_executors(self) -> bool:
        session = self._driver.session
        return not (session is None or isinstance(self._storage, Storage) or is_local(session.sparkContext.master))

    def _with_code(self) -> dict[str, str]:
        transform, import_dir = self._settings.pipeline.transform, self._settings.pipeline.import_dir
        if self._is_called and transform:  # objects such as a `udf` belong to one engine
            forget_code(transform, import_dir)
            self._transform = load_transform(transform, import_dir)
            self._requeue_put = None
        return code_version(import_dir)

    def _check(self) -> None:
        self._is_called = True
        topic = TopicPartition(self._settings.kafka.topics[0], 0)
        with self._driver_used():
            self.batch_put(self._storage).check(self._source({topic: KafkaSource(0, None)}))
        self._is_checked = True

    def batch_put(self, storage: OffsetStore) -> BatchPut:
        if isinstance(storage, Storage):
            return BlockPut(storage, self._transform, self._settings.pipeline.transform)
        from kctl_agent.storage.lake.storage import LakeStorage  # imports delta-rs, which only a table needs
        from kctl_agent.worker.query.lake_put import LakePut

        assert isinstance(storage, LakeStorage)
        return LakePut(storage, self._of_batches, self._settings.pipeline.transform, self._typed)

    def _of_batches(self, frame: DataFrame) -> DataFrame:
        if self._settings.formats.value != "json":
            return self._transform(frame)
        from kctl_agent.worker.query.typed_rows import unframed

        return self._transform(unframed(frame))

    def _made_typed(self) -> TypedRows | None:
        settings = self._settings
        if isinstance(self._storage, Storage) or settings.formats.value != "avro" or settings.formats.registry is None:
            return None
        from kctl_agent.schemas.registry import Registry
        from kctl_agent.worker.query.typed_rows import TypedRows

        registry = Registry(settings.formats.registry)
        return TypedRows(registry, settings.kafka.topics, lambda kind, text: self.happened(kind, text))

    @property
    def session(self) -> SparkSession | None:
        return self._driver.session

    def requeue_put(self) -> RequeuePut | None:
        """Returns the object that requeues dead letters, or None if the storage is not a table or is not bound yet."""
        from kctl_agent.storage.lake.storage import LakeStorage
        from kctl_agent.worker.query.requeue_put import RequeuePut

        if not isinstance(self._storage, LakeStorage) or not self._storage.is_bound:
            return None
        if self._requeue_put is None:
            name, group = self._settings.pipeline.transform, self._settings.kafka.group
            worker = self._settings.name
            self._requeue_put = RequeuePut(self._storage, self._of_batches, name, group, worker, self._typed)
        return self._requeue_put

    @property
    def sources(self) -> dict[TopicPartition, KafkaSource] | None:
        runs = self._runs.values()
        return {tp: source for run in runs for tp, source in run.sources.items()} if runs else None

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return {tp: offset for run in self._runs.values() for tp, offset in run.positions.items()}

    @property
    def planned(self) -> dict[TopicPartition, int]:
        """The end offset of each partition's running batch, or the partition's position if no batch runs."""
        return {tp: offset for run in self._runs.values() for tp, offset in run.planned.items()}

    @property
    def query_id(self) -> str | None:
        return max(self._runs.values(), key=lambda run: len(run.sources)).query_id if self._runs else None

    @property
    def batch_started_at(self) -> float | None:
        return min((at for run in self._runs.values() if (at := run.batch_started_at) is not None), default=None)

    @property
    def cleared(self) -> frozenset[TopicPartition]:
        is_read = self._search is not None and any(isinstance(run, CarefulRun) for run in self._runs.values())
        return self._search.cleared(time.monotonic()) if self._search is not None and is_read else frozenset()

    @property
    def unreadable(self) -> dict[TopicPartition, UnreadPartition]:
        return {} if self._search is None else self._search.unreadable()

    def limit_kept_consumers(self, topics: Collection[int]) -> str | None:
        with self._driver_used():
            return None if self._driver.session is None else limit_kept_consumers(self._driver.session, topics)

    def start(self, sources: Mapping[TopicPartition, KafkaSource], *, is_careful: bool = False) -> None:
        if not self._is_checked:
            self._check()
        checkpoint = Path(tempfile.mkdtemp(prefix="query-", dir=self._settings.scratch_dir))
        begin = self._read_carefully if is_careful else self._stream
        try:
            with self._driver_used():
                run = begin(sources, checkpoint)
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        self._runs = {**self._runs, frozenset(sources): run}

    def _stream(self, sources: Mapping[TopicPartition, KafkaSource], checkpoint: Path) -> Run:
        put = self.batch_put(self._storage)
        run = Run(put, sources, checkpoint, self.on_batch)
        run.query = (
            put.stream(self._source(sources))
            .writeStream.foreachBatch(run.put_batch)
            .option("checkpointLocation", f"file://{checkpoint}")  # no URI: Hadoop does not decode it
            .start()
        )
        run.query_id = str(run.query.id)
        return run

    def _read_carefully(self, sources: Mapping[TopicPartition, KafkaSource], checkpoint: Path) -> Run:
        session, settings = self._session(), self._settings
        starts = {tp: source.start for tp, source in sources.items()}
        given = settings.pipeline
        limits = given.max_records_per_batch, given.trigger_seconds
        self._search = CarefulSearch(starts, *limits, time.monotonic(), self._search)
        is_wanted = given.on_unreadable == "dead_letter"
        return CarefulRun(
            self.batch_put(self._storage),
            sources,
            checkpoint,
            self.on_batch,
            self._search,
            session,
            settings.name,
            read=partial(kafka_range, session, settings.kafka),
            unreadable=partial(unreadable_records, settings.kafka) if is_wanted else lambda *_: [],
            log_ends=self.log_ends,
            is_own_fault=self.is_own_fault,
        )

    def drain(self, group: frozenset[TopicPartition] | None = None) -> bool:
        """Prevents further batches of the query of `group`, or of all queries. Returns whether no batch is running."""
        runs = self._of(group).values()
        for run in runs:
            run.gate.set()
        return not any(run.busy.locked() for run in runs)

    @property
    def draining(self) -> frozenset[frozenset[TopicPartition]]:
        return frozenset(group for group, run in self._runs.items() if run.gate.is_set())

    def stop(self, wait_seconds: float, group: frozenset[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Ends the query of `group`, or all queries, and returns the stored positions. Abandons batches that still run
        after `wait_seconds`. Their tasks may continue to store messages for a moment, but without duplicates."""
        runs = self._of(group)
        self._runs = {key: run for key, run in self._runs.items() if key not in runs}
        wait_seconds = min(wait_seconds, max(deadline.left(), 0.0))
        until = time.monotonic() + wait_seconds
        for run in runs.values():
            run.gate.set()
        for run in runs.values():
            if run.busy.acquire(timeout=max(until - time.monotonic(), 0)):
                run.busy.release()
            else:
                log.warning(
                    "the running batch did not end within %.0f s; it is abandoned and will run again", wait_seconds
                )
        left = self._settings.kafka.max_poll_interval_seconds - self._settings.pipeline.revoke_timeout_seconds
        seconds = min(STOP_SECONDS, left / 2, max(deadline.left(), _LEAST_STOP_SECONDS))
        stop_queries({run.checkpoint: run.query for run in runs.values()}, seconds)
        return {tp: offset for run in runs.values() for tp, offset in run.positions.items()}

    def has_settled(self, seconds: float) -> bool:
        now, runs = time.monotonic(), self._runs.values()
        return bool(runs) and all(run.batch_started_at is None and now - run.began_at > seconds for run in runs)

    def failures(self) -> dict[frozenset[TopicPartition], BatchFailure]:
        found = {}
        with self._driver_used():
            for group, run in self._runs.items():
                if not run.gate.is_set() and not run.query.isActive:
                    self._driver.check()
                    error = run.query.exception()
                    found[group] = run.failure or (run.failure_of(error) if error else BatchFailure("the query ended"))
            if any(failure.is_storage for failure in found.values()):
                self._check_executors()  # a new one may not share the folder
        return found

    @contextmanager
    def _driver_used(self) -> Iterator[None]:
        try:
            yield
        except DriverLost:
            raise
        except Exception:
            self._driver.check()
            raise

    def _of(self, group: frozenset[TopicPartition] | None) -> dict[frozenset[TopicPartition], Run]:
        return {key: run for key, run in self._runs.items() if group is None or key == group}

    def close(self) -> None:
        if self._executors is not None:
            self._executors.end()
        self._driver.close()

    def _source(self, sources: Mapping[TopicPartition, KafkaSource]) -> DataFrame:
        given = self._settings.pipeline
        return kafka_source(
            self._session(), self._settings.kafka, sources, given.max_records_per_batch, given.trigger_seconds
        )

    def _session(self) -> SparkSession:
        if self._driver.session is None:
            raise DriverLost("there is no Spark session")
        return self._driver.session
