"""`kctl_agent.attach`: shows how far a PySpark application has read, without changing its behaviour.

Polls Spark every second. A Spark listener would need a port in the application, and would miss events if it was slow
(sparkMeasure #7). Needs PySpark 3.4 or newer and kafka-python.
"""

import atexit
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from kctl_agent.attached.brokers import (
    NotTranslatable,
    ShadowGroup,
    elsewhere,
    last_progress,
    log_bounds,
    options_of,
    settings_of,
)
from kctl_agent.kafka.clients import opened
from kctl_agent.kafka.errors import describe, is_of_kafka
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.partitions import MemberReply, PartitionReply, PartitionsReply, lag_of
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import COMMANDS, STACK_DUMP, with_describe
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot

Partition: TypeAlias = tuple[str, int]

_KAFKA: Final = re.compile(r"KafkaV2\[|KafkaSource")


@dataclass(slots=True)
class _Query:
    state: str = "starting"
    since: float = field(default_factory=time.monotonic)
    batch_id: int | None = None
    seconds: float | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    rows_total: int = 0
    batches_total: int = 0
    positions: dict[Partition, int] = field(default_factory=dict)


class Queries:
    """The state of queries, from Spark's progress reports. Any field of a report may be missing. Not thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queries: dict[str, _Query] = {}
        self._elsewhere: set[str] = set()
        self._started_at = time.monotonic()
        self._starts: Mapping[Partition, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._ends_at: float | None = None
        self._group: str | None = None
        self._committed: Mapping[Partition, int] = {}
        self._error: str | None = None

    def polled(self, id_: str, status: str, progress: str | None) -> None:
        query = self._queries.setdefault(id_, _Query())
        query.state = "starting" if status.startswith("Initializing") else "running"
        if progress is not None:
            self._progressed(query, json.loads(progress, parse_constant=lambda _: None))  # a rate over no time

    def _progressed(self, query: _Query, progress: Mapping[str, Any]) -> None:
        batch_id = progress.get("batchId")
        if batch_id is None or (query.batch_id is not None and batch_id <= query.batch_id):
            return
        missed = 0 if query.batch_id is None else batch_id - query.batch_id - 1
        ends = {tp: end for source in sources_of(progress) for tp, end in offsets_of(source.get("endOffset")).items()}
        passed = sum(end - query.positions.get(tp, end) for tp, end in ends.items())
        duration = (progress.get("durationMs") or {}).get("triggerExecution")
        query.batch_id = batch_id
        query.seconds = None if duration is None else duration / 1000
        query.rows = progress.get("numInputRows")
        query.rows_per_second = progress.get("processedRowsPerSecond")
        # Batches between two polls have no report: the distance of the offsets includes their rows.
        query.rows_total += max(passed, query.rows or 0) if missed else query.rows or 0
        query.batches_total += 1 + missed
        query.positions.update(ends)
        self._error = None

    def keep(self, ids: set[str]) -> None:
        for id_ in self._queries.keys() - ids:
            del self._queries[id_]

    def ended(self, error: object) -> None:
        if error is not None:
            self._error = (str(error) or type(error).__name__).splitlines()[0][:300]

    def leave_out(self, elsewhere: set[str]) -> set[str]:
        new, self._elsewhere = elsewhere - self._elsewhere, elsewhere
        return new

    def failed(self, error: str) -> bool:
        is_new, self._error = error != self._error, error
        return is_new

    def positions(self) -> dict[Partition, int]:
        """Returns how far finished batches have read. If queries share a partition, takes the lowest offset."""
        merged: dict[Partition, int] = {}
        for query in (each for id_, each in self._queries.items() if id_ not in self._elsewhere):
            for partition, offset in query.positions.items():
                merged[partition] = min(offset, merged.get(partition, offset))
        return merged

    def ends(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], *, at: float) -> None:
        self._starts, self._ends, self._ends_at = starts, ends, at

    def committed(self, group: str, offsets: Mapping[Partition, int] | None) -> None:
        self._group, self._committed = group, offsets or {}

    def snapshot(self, now: float) -> Snapshot:
        positions = self.positions()
        queries = sorted(self._queries.items())
        last = max((q for _, q in queries), key=lambda q: -1 if q.batch_id is None else q.batch_id, default=None)
        state = "idle" if last is None else last.state
        rates = [query.rows_per_second for _, query in queries if query.rows_per_second is not None]
        worker = replace(
            WorkerReply.starting(self._name, "attached"),
            state=state,
            state_seconds=now - (self._started_at if last is None else last.since),
            uptime_seconds=now - self._started_at,
            query_id=",".join(id_ for id_, _ in queries) or None,
            batch_id=None if last is None else last.batch_id,
            last_batch_seconds=None if last is None else last.seconds,
            last_batch_rows=None if last is None else last.rows,
            rows_per_second=sum(rates) if rates else None,
            rows_total=sum(query.rows_total for _, query in queries),
            batches_total=sum(query.batches_total for _, query in queries),
            last_error=self._error,
        )
        age = None if self._ends_at is None else max(now - self._ends_at, 0.0)
        names = sorted(positions)
        member = None
        if self._group is not None:
            assigned = tuple(TopicPartition(*each) for each in names)
            member = MemberReply(worker=self._name, group=self._group, assignor="none", partitions=assigned)
        partitions = tuple(self._partition(each, positions[each], age) for each in names)
        return Snapshot(now, worker, replies=(member, PartitionsReply(partitions)))

    def _partition(self, partition: Partition, position: int, age: float | None) -> PartitionReply:
        start, end = self._starts.get(partition), self._ends.get(partition)
        committed = self._committed.get(partition, position)
        lag = lag_of(start, committed, position, end)
        offsets = start, committed, position, end, lag
        return PartitionReply(*partition, *offsets, age_seconds=age, stored_messages=0)


def sources_of(progress: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in progress.get("sources") or () if _KAFKA.search(str(each.get("description", "")))]


def offsets_of(offsets: object) -> dict[Partition, int]:
    """Parses offsets such as `{"orders": {"0": 17}}`, which may be JSON text. Returns {} if malformed."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return {}
    if not isinstance(offsets, Mapping):
        return {}
    return {
        (str(topic), int(partition)): offset
        for topic, partitions in offsets.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if isinstance(offset, int) and str(partition).isdecimal()
    }


_LOG: Final = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0


@dataclass(eq=False, repr=False)
class Attached:
    _spark: Any
    name: InitVar[str]
    run_dir: InitVar[Path | None]
    _commit_group: str | None
    _servers: str | None
    _settings: dict[str, Any] | None

    def __post_init__(self, name: str, run_dir: Path | None) -> None:
        self._queries = Queries(name)
        self._active: dict[tuple[str, str], Any] = {}
        self._options: dict[str, list[dict[str, str]]] = {}
        self._admin: Any = None
        self._shadow: ShadowGroup | None = None
        commands = with_describe({**COMMANDS, "stack_dump": STACK_DUMP})
        self._server = None if run_dir is None else AgentServer(run_dir, name, commands)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kctl-attached {name}", daemon=True)

    def start(self) -> None:
        if self._server is not None:
            self._server.publish(self._queries.snapshot(time.monotonic()))
            self._server.start()
            # Also after Ctrl-C. After another signal or os._exit, the master removes the files (`kctl.master.members`).
            atexit.register(self._server.close)
        self._thread.start()

    def close(self) -> None:
        """Ends the attachment, but not the application. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._server is not None:
            self._server.close()
            atexit.unregister(self._server.close)
        if self._admin is not None:
            self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        pause = _EVERY_SECONDS
        while not self._stop.wait(pause):
            well = [self._quietly(step) for step in (self._poll, self._ask, self._commit)]
            pause = _EVERY_SECONDS if all(well) else _RETRY_SECONDS
            if self._server is not None:
                self._server.publish(self._queries.snapshot(time.monotonic()))

    def _quietly(self, step: Callable[[], None]) -> bool:
        try:
            step()
            return True
        except Exception as error:  # an error must never reach the application
            text = _sentence(error, step.__name__.strip("_"), self._settings or {})
            if self._queries.failed(text):
                _LOG.warning("kctl: %s", text)
            return False

    def _poll(self) -> None:
        # A query that restarts from its checkpoint keeps its id, but not its run id.
        active = {(str(query.id), str(query.runId)): query for query in self._spark.streams.active}
        before, self._active = self._active, active
        self._queries.keep({id_ for id_, _ in before.keys() & active.keys()})
        known, self._options = self._options, {}
        for (id_, run_id), query in active.items():
            self._queries.polled(id_, query.status["message"], last_progress(query))
            is_known = (id_, run_id) in before and id_ in known
            self._options[id_] = known[id_] if is_known else options_of(query)
        # After the others, because their batches clear the error, and because Spark may have forgotten an ended query.
        for run in before.keys() - active.keys():
            self._queries.ended(before[run].exception())
        self._choose_cluster()

    def _choose_cluster(self) -> None:
        options = next((each for found in self._options.values() for each in found), None)
        if self._settings is None and self._options:
            servers = {} if self._servers is None else {"bootstrap_servers": self._servers}
            if options or servers:
                self._settings = (settings_of(options) if options else {}) | servers
        if self._settings is None:
            return
        own = self._settings["bootstrap_servers"]
        for id_ in self._queries.leave_out(elsewhere(self._options, own)):
            text = f"query {id_} reads another Kafka cluster than {own}: its offsets are left out"
            self._queries.failed(text)
            _LOG.warning("kctl: %s", text)

    def _ask(self) -> None:
        partitions = self._queries.positions()
        if self._server is None or self._settings is None or not partitions:
            return
        self._queries.ends(*log_bounds(self._connected(self._settings), partitions), at=time.monotonic())

    def _commit(self) -> None:
        if self._commit_group is None or self._settings is None:
            return
        if self._shadow is None:
            self._shadow = ShadowGroup(self._connected(self._settings), self._commit_group)
        self._queries.committed(self._commit_group, self._shadow.commit(self._queries.positions()))

    def _connected(self, settings: dict[str, Any]) -> Any:
        from kafka.admin import KafkaAdminClient

        if self._admin is None:
            own = {"client_id": "kctl-attached", "request_timeout_ms": 5000}
            self._admin = opened(KafkaAdminClient, **{**own, **settings})
        return self._admin


_FAILED: Final = {"ask": "the ends of the partitions cannot be read", "commit": "offsets cannot be committed"}


def _sentence(error: Exception, step: str, settings: Mapping[str, Any]) -> str:
    if isinstance(error, NotTranslatable):
        return f"the brokers cannot be reached as the query reaches them: {error}; give attach(kafka={{…}})"
    if is_of_kafka(error):
        return describe(error, _FAILED[step], str(settings.get("bootstrap_servers", "")))
    return f"{step}: {(str(error) or type(error).__name__).splitlines()[0][:300]}"
