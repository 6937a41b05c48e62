"""A worker's life: `python -m kctl_agent.worker`, settings on the first line of stdin.

The main thread owns membership and query: it polls the group, starts a query for what is assigned, commits what is
stored. When the rest of stdin ends, the master is gone: the worker finishes its batch, commits, leaves the group and
exits.

Exit codes: 0 stopped as asked; 78 (EX_CONFIG) cannot start as configured, with the reason as the last line of the log;
1 anything else.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import AgentError
from kctl_agent.paths import prepare_run_dir
from kctl_agent.server import AgentServer
from kctl_agent.storage import open_storage
from kctl_agent.storage.base import Storage, StorageError
from kctl_agent.worker.brokers import Brokers, BrokerView, BrokerWatcher
from kctl_agent.worker.figures import Figures, Sources
from kctl_agent.worker.membership import Lost, Membership
from kctl_agent.worker.pipeline import Batch, Pipeline, Source
from kctl_agent.worker.positions import Found, decide
from kctl_agent.worker.settings import BootError, WorkerSettings, parse

__all__ = ["main"]

log = logging.getLogger("kctl_agent.worker")

EX_CONFIG = 78
POLL_SECONDS = 0.1
SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while the agent waits for it; Python's own 5 ms were the agent's p99."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Back-off between starts of a query that ended by itself, or that could not be started."""
RESUME_FRACTION = 0.8
"""A throttled worker goes on when the storage holds less than this part of its limit, so that it does not flap."""
QUIET_SECONDS = 1.0
"""After so long without a new commit the marks are told what was committed last."""


class Worker:
    """Everything but the session, the socket and the exit code. `run` is the main thread's."""

    def __init__(self, settings: WorkerSettings, figures: Figures, storage: Storage) -> None:
        self._settings = settings
        self._figures = figures
        self._storage = storage
        self._stop_asked = threading.Event()
        self._query_lock = threading.Lock()
        """Held to start or stop the query: by the main thread and by the thread that a revocation runs in."""
        self._committed: dict[TopicPartition, int] = {}
        self._unrecorded: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._failures = 0
        self._retry_at = 0.0
        self._reported: dict[TopicPartition, int] = {}
        self._pipeline = Pipeline(settings, self._storage, lambda: self._committed, self._batch_done)
        self._brokers: Brokers | None = None
        self._watcher: BrokerWatcher | None = None
        self._membership: Membership | None = None

    def stop(self) -> None:
        """May be called from a signal handler and from any thread."""
        self._stop_asked.set()

    def run(self) -> None:
        """Until `stop`. Raises BootError, or what cannot be healed from inside."""
        self._storage.prepare()
        self._pipeline.open()
        kafka = self._settings.kafka
        self._brokers = Brokers(kafka, self._settings.name)
        self._figures.enter("joining")
        self._membership = Membership(kafka, self._settings.name, self._revoked, self._lost, self._note_committed)
        self._watcher = BrokerWatcher(self._brokers, lambda: self._membership.partitions if self._membership else ())
        self._figures.draw_from(
            Sources(
                member=lambda: self._membership.figures if self._membership else None,
                brokers=lambda: self._watcher.view if self._watcher else BrokerView(),
                positions=lambda: self._pipeline.positions,
                committed=lambda: self._committed,
                query_id=lambda: self._pipeline.query_id,
                batch_started_at=lambda: self._pipeline.batch_started_at,
            )
        )
        self._watcher.start()
        while not self._stop_asked.is_set():
            self._turn(self._membership)

    def close(self) -> None:
        """Leave in order: the batch ends, its offsets are committed, the group is left, the JVM ends."""
        self._figures.enter("stopping")
        if self._watcher:
            self._watcher.stop()
        if self._membership:
            self._membership.close()  # calls _revoked, commits, leaves
        self._record_committed()
        if self._brokers:
            self._brokers.close()
        self._pipeline.close()

    def _turn(self, membership: Membership) -> None:
        try:
            membership.poll(POLL_SECONDS)
        except KafkaError as error:
            self._complain(f"the group cannot be reached: {type(error).__name__}")
        if membership.is_rebalancing:
            self._figures.enter("rebalancing")
        self._commit(membership)
        self._look_after_query(membership)
        if time.monotonic() - self._committed_at > QUIET_SECONDS:
            self._record_committed()

    def _look_after_query(self, membership: Membership) -> None:
        """Make the query read what is assigned, as long as the storage has room."""
        wanted = membership.partitions
        running = self._pipeline.sources
        if running is not None and self._is_outdated(running, wanted):
            if self._pipeline.hold():
                self._stop_query(0.0)
            return
        if running is not None:
            self._check_query(running)
        elif wanted and time.monotonic() >= self._retry_at and not self._is_full():
            self._start_query(membership, wanted)

    def _is_outdated(self, running: Mapping[TopicPartition, Source], wanted: frozenset[TopicPartition]) -> bool:
        """The query reads other partitions than are assigned, a topic that was made again, or has to wait for room."""
        ids = self._watcher.view.topic_ids if self._watcher else {}
        recreated = any(
            source.topic_id is not None and ids.get(tp.topic, source.topic_id) != source.topic_id
            for tp, source in running.items()
        )
        return running.keys() != wanted or recreated or self._is_full()

    def _is_full(self) -> bool:
        limit, pending = self._settings.storage["limit"], self._figures.pending
        if not limit or pending is None:
            return False
        throttled = self._figures.state == "throttled"
        full = bool(pending >= limit * (RESUME_FRACTION if throttled else 1.0))
        if full:
            self._figures.enter("throttled")
        return full

    def _start_query(self, membership: Membership, wanted: frozenset[TopicPartition]) -> None:
        self._figures.enter("assigned")
        assert self._brokers is not None
        try:
            found = self._brokers.found(wanted)
            with self._query_lock:
                if membership.partitions != wanted:
                    return  # a rebalance came between
                sources = self._place(found)
                self._pipeline.start(sources)
        except (KafkaError, StorageError) as error:
            self._retry_later(f"cannot begin to read: {error or type(error).__name__}")
            return
        log.info("reads %s", {f"{tp.topic}-{tp.partition}": source.start for tp, source in sorted(sources.items())})
        self._commit(membership)
        self._figures.enter("running")

    def _place(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Source]:
        """Decide where to start, place the marks that move, and tell what happened."""
        marks = self._storage.marks([tuple(tp) for tp in found])
        starts = {
            tp: decide(at, marks.get(tuple(tp)), self._settings.kafka.auto_offset_reset) for tp, at in found.items()
        }
        lost = [tp for tp, start in starts.items() if any(moved.kind == "records_lost" for moved in start.moved)]
        if lost and self._settings.pipeline.on_data_loss == "stop":
            texts = [m.sentence(f"{tp.topic}-{tp.partition}") for tp in sorted(lost) for m in starts[tp].moved]
            raise BootError(f"{'; '.join(texts)}; workers.on_data_loss is stop")
        self._storage.place_marks([start.mark for start in starts.values() if start.mark is not None])
        for tp, start in sorted(starts.items()):
            for moved in start.moved:
                text = moved.sentence(f"{tp.topic}-{tp.partition}")
                self._figures.happened(moved.kind, text, tp, (moved.from_offset, moved.to_offset))
        self._committed = {tp: at.committed for tp, at in found.items() if at.committed is not None}
        return {tp: Source(start.offset, found[tp].topic_id) for tp, start in starts.items()}

    def _check_query(self, running: Mapping[TopicPartition, Source]) -> None:
        if failure := self._pipeline.failure():
            self._stop_query(0.0)
            self._retry_later(failure)
            return
        view = self._watcher.view if self._watcher else BrokerView()
        positions = self._pipeline.positions
        for tp in running:
            start, position = view.starts.get(tp), positions.get(tp)
            if start is not None and position is not None and start > max(position, self._reported.get(tp, 0)):
                begin = max(position, self._reported.get(tp, 0))
                self._reported[tp] = start
                text = (
                    f"{tp.topic}-{tp.partition}: {start - begin} offsets from {begin} on were removed by retention "
                    "before they were read"
                )
                self._figures.happened("records_lost", text, tp, (begin, start))

    def _retry_later(self, error: str) -> None:
        seconds = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        self._retry_at = time.monotonic() + seconds
        self._complain(f"{error}; next try in {seconds:.0f} s")

    def _complain(self, error: str) -> None:
        log.error("%s", error)
        self._figures.failed(error)

    def _stop_query(self, wait_seconds: float) -> dict[TopicPartition, int]:
        with self._query_lock:
            return self._pipeline.stop(wait_seconds)

    def _batch_done(self, batch: Batch) -> None:
        """On Spark's callback thread."""
        self._failures = 0
        self._figures.batch(batch)

    def _commit(self, membership: Membership) -> None:
        """Commit what is stored; what fails is tried again with the next turn, or at the revocation."""
        ends = {tp: end for tp, end in self._pipeline.positions.items() if self._committed.get(tp) != end}
        if not ends or membership.is_rebalancing:
            return
        try:
            membership.commit(ends)
        except Lost:
            self._figures.happened("lost", "the group went on without this worker; it joins again")
            self._stop_query(0.0)
        except KafkaError as error:
            self._complain(f"offsets are stored but not yet committed: {type(error).__name__}")
        else:
            self._note_committed(ends)

    def _note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed = {**self._committed, **offsets}
        self._unrecorded = {**self._unrecorded, **offsets}
        self._committed_at = time.monotonic()

    def _record_committed(self) -> None:
        """Tell the marks what the group has committed, so that a later reset is known from a crash."""
        offsets, self._unrecorded = self._unrecorded, {}
        if not offsets:
            return
        try:
            self._storage.record_committed({tuple(tp): offset for tp, offset in offsets.items()})
        except StorageError as error:
            log.warning("the committed offsets were not recorded: %s", error)

    def _revoked(self, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:
        """In a thread of its own, while the I/O loop goes on with the heartbeats."""
        if not partitions:
            return {}
        log.info("revoked: %s", sorted(f"{tp.topic}-{tp.partition}" for tp in partitions))
        if self._figures.state != "stopping":
            self._figures.enter("rebalancing")
        ends = self._stop_query(self._settings.pipeline.revoke_timeout_seconds)
        return {tp: end for tp, end in ends.items() if self._committed.get(tp) != end}

    def _lost(self) -> None:
        self._figures.happened("lost", "the group went on without this worker; it joins again")
        self._stop_query(0.0)


def main() -> int:
    """The process: settings from stdin, agent socket first, exit code as above."""
    sys.setswitchinterval(SWITCH_SECONDS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the master's business
    line = sys.stdin.readline()
    try:
        settings = parse(line)
    except BootError as error:
        sys.stderr.write(f"kctl worker: {error}\n")
        return EX_CONFIG
    logging.basicConfig(
        level=settings.log_level, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs each refused connection; we tell of an outage once
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the trace of each failed batch
    try:
        settings.scratch_dir.mkdir(parents=True, exist_ok=True)
        prepare_run_dir(settings.run_dir)
        with AgentServer(settings.run_dir, settings.name) as server:
            return _serve(settings, server)
    except (BootError, OSError) as error:
        log.error("cannot start: %s", error)
        return EX_CONFIG
    except AgentError as error:
        log.error("%s", error)
        return 1


def _serve(settings: WorkerSettings, server: AgentServer) -> int:
    storage = open_storage(settings.storage)
    figures = Figures(settings.name, server, storage)
    figures.start()
    worker = Worker(settings, figures, storage)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    threading.Thread(target=_stop_with_master, args=(worker,), name="kctl-lifeline", daemon=True).start()
    code, why = 0, ""
    try:
        worker.run()
    except BootError as error:
        figures.enter("failed")
        figures.failed(str(error))
        code, why = EX_CONFIG, f"cannot start: {error}"
    except Exception as error:  # the boundary of the process: told in one line, with the trace at DEBUG
        figures.enter("failed")
        figures.failed(f"{type(error).__name__}: {error}"[:500])
        code, why = 1, f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        log.error("%s; leaving", why)
        log.debug("trace", exc_info=True)
    finally:
        worker.close()
        figures.close()
    if why:
        log.error("%s", why)  # the last line of the log is what `kctl status` shows
    else:
        log.info("left")
    return code


def _stop_with_master(worker: Worker) -> None:
    """Wait for the end of stdin: the master's end of the pipe closes when the master does, however it ends."""
    while sys.stdin.readline():
        pass
    log.warning("the master is gone; stopping")
    worker.stop()
