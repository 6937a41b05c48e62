"""The metrics of workers, their batches, sinkers and the storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kctl.exporter.metric import GROUP, Metric, Sample, Single
from kctl.master.restart import State
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.wire import JsonObject

__all__ = ["METRICS"]

_WORKER = (*GROUP, "worker")
_OUTCOMES = ("handled", "retried", "dead", "lost")
_Samples = Callable[[FleetSnapshot], Iterator[Sample]]


def _up(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("ping")
    if reduced is not None:
        for name in reduced.asked:
            yield (snapshot.cluster, snapshot.group, name), float(name in reduced.answered)


def _state(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.workers:
        for state in State:
            yield (snapshot.cluster, snapshot.group, worker.name, state.value), float(worker.state == state.value)


def _restarts(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.workers:
        for reason, count in worker.restarts.items():
            yield (snapshot.cluster, snapshot.group, worker.name, reason), count


def _by_worker(figures: Callable[[FleetSnapshot], Mapping[str, int]]) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for name, figure in figures(snapshot).items():
            yield (snapshot.cluster, snapshot.group, name), figure

    return samples


def _rows(snapshot: FleetSnapshot) -> list[JsonObject]:
    reduced = snapshot.commands.get("workers")
    rows: list[JsonObject] = [] if reduced is None else reduced.result["rows"]
    return rows


def _told(field: str, *, is_counter: bool = False) -> _Samples:
    """What each worker says of itself. A sinker's batches are calls of its handler and have metrics of their own."""

    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in _rows(snapshot):
            value = _number(row.get(field))
            if value is not None and row.get("kind") != "sinker" and not (is_counter and value < 0):
                yield (snapshot.cluster, snapshot.group, str(row["name"])), value

    return samples


def _sinkers(snapshot: FleetSnapshot) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for row in _rows(snapshot):
        sinker = row.get("sinker")
        if isinstance(sinker, Mapping):
            yield str(row["name"]), sinker


def _of_sinker(field: str) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for name, sinker in _sinkers(snapshot):
            value = _number(sinker.get(field))
            if value is not None:
                yield (snapshot.cluster, snapshot.group, name), value

    return samples


def _sinker_messages(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for name, sinker in _sinkers(snapshot):
        for outcome in _OUTCOMES:
            value = _number(sinker.get(outcome))
            if value is not None:
                yield (snapshot.cluster, snapshot.group, name, outcome), value


def _handler_duration(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for name, sinker in _sinkers(snapshot):
        for percentile in ("p50", "p99"):
            value = _number(sinker.get(f"handler_{percentile}_seconds"))
            if value is not None:
                yield (snapshot.cluster, snapshot.group, name, percentile), value


def _storage(field: str) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        reduced = snapshot.commands.get("block_size")
        value = None if reduced is None else _number(reduced.result.get(field))
        if value is not None:
            yield (snapshot.cluster, snapshot.group), value

    return samples


def _storage_messages(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for state in ("pending", "processing", "dead"):
        for labels, value in _storage(state)(snapshot):
            yield (*labels, state), value


def _storage_limit(field: str) -> _Samples:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        return (sample for sample in _storage(field)(snapshot) if sample[1] > 0)  # 0 is no limit

    return samples


def _storage_full(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("block_size")
    if reduced is not None and "full" in reduced.result and _number(reduced.result.get("pending")) is not None:
        yield (snapshot.cluster, snapshot.group), float(bool(reduced.result["full"]))


def _number(value: object) -> float | None:
    """An attached agent may say anything."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


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
        samples=_told("last_batch_seconds"),
    ),
    Single(
        name="kctl_batch_running_seconds",
        labels=_WORKER,
        unit="seconds",
        sentence="For how long the batch in progress has been running; absent between batches.",
        samples=_told("batch_running_seconds"),
    ),
    Single(
        name="kctl_batch_rows_total",
        kind="counter",
        labels=_WORKER,
        unit="messages",
        sentence="Messages that the worker has stored since it started.",
        samples=_told("rows_total", is_counter=True),
    ),
    Single(
        name="kctl_batches_total",
        kind="counter",
        labels=_WORKER,
        unit="batches",
        sentence="Batches that the worker has finished since it started.",
        samples=_told("batches_total", is_counter=True),
    ),
    Single(
        name="kctl_worker_query_failures_total",
        kind="counter",
        labels=_WORKER,
        unit="queries",
        sentence="Queries of the worker that ended by themselves with an error, since it started; it begins another "
        "each time, and its last error says why.",
        samples=_told("queries_failed", is_counter=True),
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
        samples=_storage("bytes"),
    ),
    Single(
        name="kctl_storage_limit_messages",
        labels=GROUP,
        unit="messages",
        sentence="With so many messages in the storage the workers take no new batch; absent without a limit.",
        samples=_storage_limit("limit"),
    ),
    Single(
        name="kctl_storage_limit_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="With so many bytes in the storage the workers take no new batch; absent without a limit.",
        samples=_storage_limit("limit_bytes"),
    ),
    Single(
        name="kctl_storage_dead_limit_messages",
        labels=GROUP,
        unit="messages",
        sentence="With so many dead letters the workers take no new batch; absent without a limit.",
        samples=_storage_limit("dead_limit"),
    ),
    Single(
        name="kctl_storage_delayed_messages",
        labels=GROUP,
        unit="messages",
        sentence="Pending messages that failed and wait for their next try.",
        samples=_storage("delayed"),
    ),
    Single(
        name="kctl_storage_free_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="What is left where the storage lies: on the disk of a file, of the `maxmemory` of a Redis; absent of "
        "a Redis without one.",
        samples=_storage("free_bytes"),
    ),
    Single(
        name="kctl_storage_full",
        labels=GROUP,
        unit="0 or 1",
        sentence="Whether the workers take no new batch because the storage has no room (`kctl rpc block_size` says "
        "why).",
        samples=_storage_full,
    ),
    Single(
        name="kctl_sinker_messages_total",
        kind="counter",
        labels=(*_WORKER, "outcome"),
        unit="messages",
        sentence="Messages that a sinker has settled since it started: `handled` (gone for good), `retried` (to come "
        "again), `dead` (dead letters), `lost` (its lease was lost meanwhile, so they are handled again).",
        samples=_sinker_messages,
    ),
    Single(
        name="kctl_sinker_in_flight_messages",
        labels=_WORKER,
        unit="messages",
        sentence="Messages that the sinker has claimed and not settled yet.",
        samples=_of_sinker("in_flight"),
    ),
    Single(
        name="kctl_sinker_handler_errors_total",
        kind="counter",
        labels=_WORKER,
        unit="calls",
        sentence="Calls of the handler that raised, took too long or returned something else than a bool for each "
        "message.",
        samples=_of_sinker("handler_errors"),
    ),
    Single(
        name="kctl_sinker_handler_duration_seconds",
        labels=(*_WORKER, "percentile"),
        unit="seconds",
        sentence="How long the sinker's latest calls of the handler took: `p50`, `p99`.",
        samples=_handler_duration,
    ),
)
