"""Metrics of workers, batches, sinkers, the engine and the storage. Most come from `FieldMetric`s of reply classes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, cast

from kctl.exporter.metric import GROUP, Metric, Sample, Single, by_label, quoted, single
from kctl.master.restart import SupervisionState
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.workers import NOT_GROUP_MEMBERS, WorkerRow
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.fields import FieldMetric as FieldMetric
from kctl_agent.replies.workers import CommitStats, EngineStats, SinkerStats, WorkerReply

_WORKER = (*GROUP, "worker")
_Named: TypeAlias = Callable[[FleetSnapshot], Iterable[tuple[tuple[str, ...], object | None]]]
"""Finds the replies of one type in a snapshot, each with its label values. A reply that is missing is None."""


def _declared(reply: type, labels: tuple[str, ...], named: _Named) -> Iterator[Metric]:
    found: dict[str, list[tuple[str, FieldMetric]]] = {}
    for each in fields(cast(Any, reply)):
        if "metric" in each.metadata:
            found.setdefault(each.metadata["metric"].name, []).append((each.name, each.metadata["metric"]))
    for name, of in found.items():
        metric = of[0][1]
        yield Single(
            name=name,
            labels=labels if metric.label is None else (*labels, metric.label[0]),
            sentence=metric.sentence,
            samples=_samples(of, named),
        )


def _samples(of: Sequence[tuple[str, FieldMetric]], named: _Named) -> Callable[[FleetSnapshot], Iterator[Sample]]:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for labels, reply in named(snapshot):
            for name, metric in of if reply is not None else ():
                value = getattr(reply, name)
                if value is not None and (value or not metric.is_limit):
                    yield labels if metric.label is None else (*labels, metric.label[1]), value

    return samples


def _workers(snapshot: FleetSnapshot) -> Iterator[tuple[tuple[str, ...], WorkerRow]]:
    for row in snapshot.workers.result.rows:
        if row.kind not in NOT_GROUP_MEMBERS:
            yield (row.name,), row


def _full(stored: StorageReply) -> list[Sample]:
    return single(None if stored.pending is None and stored.table is None else float(bool(stored.full)))


METRICS: tuple[Metric, ...] = (
    Single(
        name="kctl_worker_up",
        labels=_WORKER,
        sentence="1 if the agent of the worker or sinker answered a ping in the last collection, else 0.",
        samples=lambda snapshot: [((name,), float(name in snapshot.ping.answered)) for name in snapshot.ping.asked],
    ),
    Single(
        name="kctl_worker_state",
        labels=(*_WORKER, "state"),
        sentence="1 for the state of the worker or sinker in the supervisor, 0 for other states. The states are "
        f"{quoted(SupervisionState)}.",
        samples=lambda snapshot: [
            ((worker.name, state.value), float(worker.state == state.value))
            for worker in snapshot.supervised
            for state in SupervisionState
        ],
    ),
    Single(
        name="kctl_worker_restarts_total",
        labels=(*_WORKER, "reason"),
        sentence="Restarts of the process by the supervisor, by cause.",
        samples=lambda snapshot: [
            ((worker.name, reason), count)
            for worker in snapshot.supervised
            for reason, count in worker.restarts_by_cause.items()
        ],
    ),
    Single(
        name="kctl_worker_resident_memory_bytes",
        labels=_WORKER,
        sentence="Memory of all processes of the worker together, including its JVM. Memory that forked processes "
        "share counts once.",
        samples=lambda snapshot: by_label(snapshot.resident_bytes),
    ),
    Single(
        name="kctl_worker_memory_limit_bytes",
        labels=_WORKER,
        sentence="The memory at which kctl restarts the worker. Absent without a limit.",
        samples=lambda snapshot: by_label(snapshot.memory_limit_bytes),
    ),
    *_declared(WorkerReply, _WORKER, _workers),
    *_declared(StorageReply, GROUP, lambda snapshot: [((), snapshot.block_size.result)]),
    Single(
        name="kctl_storage_full",
        sentence="Whether the storage is at a limit, so that workers take no new batch. `kctl rpc block_size` names "
        "the limit.",
        samples=lambda snapshot: _full(snapshot.block_size.result),
    ),
    *_declared(TableReply, GROUP, lambda snapshot: [((), snapshot.block_size.result.table)]),
    *_declared(CommitStats, _WORKER, lambda snapshot: ((labels, row.commits) for labels, row in _workers(snapshot))),
    *_declared(
        SinkerStats, _WORKER, lambda snapshot: (((row.name,), row.sinker) for row in snapshot.workers.result.rows)
    ),
    *_declared(EngineStats, GROUP, lambda snapshot: (((), row.engine) for row in snapshot.workers.result.rows)),
)
