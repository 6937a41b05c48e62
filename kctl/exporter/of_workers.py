"""The metrics of workers, their batches, sinkers and the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kctl.exporter.metric import GROUP, Metric, Sample, Single
from kctl.master.restart import State
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.workers import NOT_GROUP_MEMBERS, WorkerRow
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.workers import SinkerStats

__all__ = ["METRICS"]

_WORKER = (*GROUP, "worker")
_MESSAGES: Mapping[tuple[str, ...], Callable[[SinkerStats], float | None]] = {
    ("handled",): lambda stats: stats.handled,
    ("retried",): lambda stats: stats.retried,
    ("dead",): lambda stats: stats.dead,
    ("lost",): lambda stats: stats.lost,
}
_DURATIONS: Mapping[tuple[str, ...], Callable[[SinkerStats], float | None]] = {
    ("p50",): lambda stats: stats.handler_p50_seconds,
    ("p99",): lambda stats: stats.handler_p99_seconds,
}
_Samples = Callable[[FleetSnapshot], Iterator[Sample]]


def _up(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for name in snapshot.ping.asked:
        yield (snapshot.cluster, snapshot.group, name), float(name in snapshot.ping.answered)


def _state(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.supervised:
        for state in State:
            yield (snapshot.cluster, snapshot.group, worker.name, state.value), float(worker.state == state.value)


def _restarts(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.supervised:
        for reason, count in worker.restarts_by_cause.items():
            yield (snapshot.cluster, snapshot.group, worker.name, reason), count


def _by_worker(values: Callable[[FleetSnapshot], Mapping[str, int]]) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for name, value in values(snapshot).items():
            yield (snapshot.cluster, snapshot.group, name), value

    return samples


def _of_worker(value_of: Callable[[WorkerRow], float | None]) -> _Samples:
    """What each worker reports. A sinker's batches are calls of its handler and have metrics of their own;
    an engine has none."""

    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in snapshot.workers.result.rows:
            value = value_of(row)
            if value is not None and row.kind not in NOT_GROUP_MEMBERS:
                yield (snapshot.cluster, snapshot.group, row.name), value

    return samples


def _of_sinker(values: Mapping[tuple[str, ...], Callable[[SinkerStats], float | None]]) -> _Samples:
    """`values` are by what follows the worker among the labels."""

    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in snapshot.workers.result.rows:
            if row.sinker is None:
                continue
            for labels, value_of in values.items():
                value = value_of(row.sinker)
                if value is not None:
                    yield (snapshot.cluster, snapshot.group, row.name, *labels), value

    return samples


def _storage(value_of: Callable[[StorageReply], float | None]) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        value = value_of(snapshot.block_size.result)
        if value is not None:
            yield (snapshot.cluster, snapshot.group), value

    return samples


def _storage_messages(snapshot: FleetSnapshot) -> Iterator[Sample]:
    stored = snapshot.block_size.result
    for state, count in (("pending", stored.pending), ("processing", stored.processing), ("dead", stored.dead)):
        if count is not None:
            yield (snapshot.cluster, snapshot.group, state), count


def _table(value_of: Callable[[TableReply], float | None]) -> _Samples:
    return _storage(lambda stored: None if stored.table is None else value_of(stored.table))


def _limit(value: int | None) -> int | None:
    """0 is no limit."""
    return value or None


def _full(stored: StorageReply) -> float | None:
    return None if stored.pending is None and stored.table is None else float(bool(stored.full))


METRICS: tuple[Metric, ...] = (
    Single(
        name="kctl_worker_up",
        labels=_WORKER,
        unit="0 or 1",
        sentence="1 if the agent of the worker or sinker answered a ping in the last collection, else 0.",
        samples=_up,
    ),
    Single(
        name="kctl_worker_state",
        labels=(*_WORKER, "state"),
        unit="0 or 1",
        sentence="1 for the state that the supervisor sees the worker or sinker in, 0 for the others: "
        + ", ".join(f"`{state.value}`" for state in State)
        + ".",
        samples=_state,
    ),
    Single(
        name="kctl_worker_restarts_total",
        kind="counter",
        labels=(*_WORKER, "reason"),
        unit="restarts",
        sentence="How often the supervisor has started the worker or sinker again, by what had ended it.",
        samples=_restarts,
    ),
    Single(
        name="kctl_worker_resident_memory_bytes",
        labels=_WORKER,
        unit="bytes",
        sentence="Memory of all processes of the worker together, JVM included; what forked ones share counts once.",
        samples=_by_worker(lambda snapshot: snapshot.resident_bytes),
    ),
    Single(
        name="kctl_worker_memory_limit_bytes",
        labels=_WORKER,
        unit="bytes",
        sentence="The memory at which the worker is restarted; absent where there is no limit.",
        samples=_by_worker(lambda snapshot: snapshot.memory_limit_bytes),
    ),
    Single(
        name="kctl_batch_duration_seconds",
        labels=_WORKER,
        unit="seconds",
        sentence="How long the worker's last finished batch took.",
        samples=_of_worker(lambda row: row.last_batch_seconds),
    ),
    Single(
        name="kctl_batch_running_seconds",
        labels=_WORKER,
        unit="seconds",
        sentence="For how long the batch in progress has been running; absent between batches.",
        samples=_of_worker(lambda row: row.batch_running_seconds),
    ),
    Single(
        name="kctl_batch_rows_total",
        kind="counter",
        labels=_WORKER,
        unit="messages",
        sentence="Messages that the worker has stored since it started.",
        samples=_of_worker(lambda row: row.rows_total),
    ),
    Single(
        name="kctl_batches_total",
        kind="counter",
        labels=_WORKER,
        unit="batches",
        sentence="Batches that the worker has finished since it started.",
        samples=_of_worker(lambda row: row.batches_total),
    ),
    Single(
        name="kctl_worker_query_failures_total",
        kind="counter",
        labels=_WORKER,
        unit="queries",
        sentence="Queries of the worker that ended by themselves with an error, since it started; it begins another "
        "each time, and its last error is the reason.",
        samples=_of_worker(lambda row: row.queries_failed),
    ),
    Single(
        name="kctl_storage_messages",
        labels=(*GROUP, "state"),
        unit="messages",
        sentence="Messages in the storage: `pending`, `processing`, `dead`. A storage that workers share is counted "
        "once.",
        samples=_storage_messages,
    ),
    Single(
        name="kctl_storage_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="The size of what the storage holds.",
        samples=_storage(lambda stored: stored.bytes),
    ),
    Single(
        name="kctl_storage_limit_messages",
        labels=GROUP,
        unit="messages",
        sentence="With so many messages in the storage the workers take no new batch; absent without a limit.",
        samples=_storage(lambda stored: _limit(stored.limit)),
    ),
    Single(
        name="kctl_storage_limit_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="With so many bytes in the storage the workers take no new batch; absent without a limit.",
        samples=_storage(lambda stored: _limit(stored.limit_bytes)),
    ),
    Single(
        name="kctl_storage_dead_limit_messages",
        labels=GROUP,
        unit="messages",
        sentence="With so many dead letters the workers take no new batch; absent without a limit.",
        samples=_storage(lambda stored: _limit(stored.dead_limit)),
    ),
    Single(
        name="kctl_storage_delayed_messages",
        labels=GROUP,
        unit="messages",
        sentence="Pending messages that failed and wait for their next try.",
        samples=_storage(lambda stored: stored.delayed),
    ),
    Single(
        name="kctl_storage_free_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="What is left where the storage lies: on the disk of a file, of the `maxmemory` of a Redis; absent of "
        "a Redis without one.",
        samples=_storage(lambda stored: stored.free_bytes),
    ),
    Single(
        name="kctl_storage_full",
        labels=GROUP,
        unit="0 or 1",
        sentence="Whether the workers take no new batch because the storage has no room (`kctl rpc block_size` shows "
        "why).",
        samples=_storage(_full),
    ),
    Single(
        name="kctl_table_version",
        labels=GROUP,
        unit="commits",
        sentence="Of the table of mode `lake`: its newest version. This and the next four are counted when there is a "
        "new one, at most every ten seconds; the size is `kctl_storage_bytes`.",
        samples=_table(lambda table: table.version),
    ),
    Single(
        name="kctl_table_rows",
        labels=GROUP,
        unit="rows",
        sentence="Rows in the table; absent where the log does not have them of every file.",
        samples=_table(lambda table: table.rows),
    ),
    Single(
        name="kctl_table_files",
        labels=GROUP,
        unit="files",
        sentence="Files of the newest version.",
        samples=_table(lambda table: table.files),
    ),
    Single(
        name="kctl_table_small_files",
        labels=GROUP,
        unit="files",
        sentence="Of these, how many are smaller than half of `storage.target_file_bytes`.",
        samples=_table(lambda table: table.small_files),
    ),
    Single(
        name="kctl_table_last_commit_age_seconds",
        labels=GROUP,
        unit="seconds",
        sentence="Since anybody has committed to the table.",
        samples=_table(lambda table: table.last_commit_seconds),
    ),
    Single(
        name="kctl_table_commit_failures_total",
        kind="counter",
        labels=_WORKER,
        unit="commits",
        sentence="Commits of the worker to its table that failed, since it started; its batch is run again.",
        samples=_of_worker(lambda row: None if row.commits is None else row.commits.failed),
    ),
    Single(
        name="kctl_table_commit_retries_total",
        kind="counter",
        labels=_WORKER,
        unit="commits",
        sentence="Commits of the worker that others got ahead of, so that they were decided anew on what these left; "
        "usual where many workers fill one table.",
        samples=_of_worker(lambda row: None if row.commits is None else row.commits.retried),
    ),
    Single(
        name="kctl_sinker_messages_total",
        kind="counter",
        labels=(*_WORKER, "outcome"),
        unit="messages",
        sentence="Messages that a sinker has settled since it started: `handled` (gone for good), `retried` (to come "
        "again), `dead` (dead letters), `lost` (its lease was lost meanwhile, so they are handled again).",
        samples=_of_sinker(_MESSAGES),
    ),
    Single(
        name="kctl_sinker_in_flight_messages",
        labels=_WORKER,
        unit="messages",
        sentence="Messages that the sinker has claimed and not settled yet.",
        samples=_of_sinker({(): lambda stats: stats.in_flight}),
    ),
    Single(
        name="kctl_sinker_handler_errors_total",
        kind="counter",
        labels=_WORKER,
        unit="calls",
        sentence="Calls of the handler that raised, took too long or returned something else than a bool for each "
        "message.",
        samples=_of_sinker({(): lambda stats: stats.handler_errors}),
    ),
    Single(
        name="kctl_sinker_handler_duration_seconds",
        labels=(*_WORKER, "percentile"),
        unit="seconds",
        sentence="How long the sinker's latest calls of the handler took: `p50`, `p99`.",
        samples=_of_sinker(_DURATIONS),
    ),
)
