"""Makes samples for the adviser from snapshots of the fleet. No I/O."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Work
from kctl.config.sections import Config
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.advice import Advice, Answer
from kctl.rows.columns import as_reals
from kctl.rows.workers import AgentState, WorkerRow
from kctl.status.assessments import judged_lag_seconds

_BEGINNING = frozenset({AgentState.STARTING, AgentState.JOINING, AgentState.ASSIGNED, AgentState.REBALANCING})


class FleetAdviser:
    """Advises on a fleet from its successive snapshots."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._adviser = Adviser(config.advice, config.kafka.assignor)

    def seen(self, snapshot: FleetSnapshot) -> Advice:
        return self._adviser.seen(self._sample(snapshot))

    def _sample(self, snapshot: FleetSnapshot) -> Sample:
        config, columns, size = self._config, snapshot.offset_checker.result, len(snapshot.partitions)
        rows, storage = snapshot.workers.result.rows, snapshot.block_size.result
        own, group, hosts = _running(snapshot, "worker"), snapshot.broker_group, snapshot.hosts
        failing = (row for row in rows if row.sinker is not None and row.sinker.failing_seconds is not None)
        has_one_storage = hosts is None or snapshot.has_own_storage
        return Sample(
            at=snapshot.taken_at,
            unix=snapshot.taken_at_unix,
            keys=tuple(columns.names.keys[:size]),
            end=as_reals(columns.end[:size]),
            lag=as_reals(columns.lag[:size]),
            owners=tuple(columns.listed("worker", None)[:size]),
            workers=own if hosts is None or group is None else group.members,
            work=_work(rows, "worker"),
            full_batch=config.workers.max_records_per_batch,
            cycle_seconds=float(np.nan_to_num(judged_lag_seconds(snapshot.own_assessments)[1])),
            sinkers=_running(snapshot, "sinker") if has_one_storage else 0,
            handling=_work(rows, "sinker"),
            full_call=config.sinkers.batch_size,
            pending=None if storage.pending is None else float(storage.pending + (storage.processing or 0)),
            workers_per_host=None if hosts is None else own,
            bound_by=Answer.HANDLER if config.storage.mode == "directly" else Answer.STORAGE,
            blocked=next(_blocked(snapshot, own), ""),
            full=storage.full or "",
            failing=next((f"{row.name} handles no messages: its handler fails" for row in failing), ""),
        )


def _blocked(snapshot: FleetSnapshot, workers: int) -> Iterator[str]:
    brokers, group = snapshot.brokers, snapshot.broker_group
    if brokers is not None and brokers.error is not None:
        yield f"the brokers do not answer: {brokers.error}"
    if (snapshot.offset_checker.result.age_seconds > snapshot.stale_after_seconds).any():
        yield "the brokers' offsets are old"
    if any(status.paused for status in snapshot.supervised):
        yield "partitions are paused"
    if not workers:
        yield "no worker runs"
    for row in snapshot.workers.result.rows:
        if row.waiting_for is not None:
            yield f"{row.name} waits for the {row.waiting_for.what}"
        if row.state in _BEGINNING or (row.supervisor is not None and row.supervisor.state in ("starting", "backoff")):
            yield f"{row.name} is {row.state or 'starting'}"
    if group is not None and group.is_rebalancing:
        yield "the group is rebalancing"
    for failed in snapshot.workers.failed:
        yield f"{failed.sender} does not answer"


def _running(snapshot: FleetSnapshot, kind: str) -> int:
    return sum(status.kind == kind and status.desired == "running" for status in snapshot.supervised)


def _work(rows: Iterable[WorkerRow], kind: str) -> Mapping[str, Work]:
    counted = (
        (row.name, row.batches_total, row.rows_total, row.batch_seconds_total) for row in rows if row.kind == kind
    )
    return {
        name: Work(batches, done, seconds)
        for name, batches, done, seconds in counted
        if batches is not None and done is not None and seconds is not None
    }
