"""The one table of metrics: name, type, labels, sentence, and how its samples follow from a `FleetSnapshot`.

What is unknown has no sample: never 0, never NaN. Nothing is remembered between snapshots, so a series that is no
longer true is gone with the next one. docs/metrics.md is written from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kctl.master.restart import State
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import PartitionRow

__all__ = ["METRICS", "Metric", "Sample"]

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values in the order of the metric's labels, and the value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter's name is written here as it is exposed, with its `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    sentence: str
    samples: Callable[[FleetSnapshot], Iterable[Sample]]


_PARTITION = ("cluster", "group", "topic", "partition")
_GROUP = ("cluster", "group")
_OUTCOMES = ("handled", "retried", "dead", "lost")


def _per_partition(figure: Callable[[PartitionRow], int | None]) -> Callable[[FleetSnapshot], Iterator[Sample]]:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in snapshot.partitions:
            value = figure(row)
            if value is not None:
                yield (snapshot.cluster, snapshot.group, row.topic, str(row.partition)), value

    return samples


def _group_lag(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("kafka_lag")
    if reduced is not None and reduced.result["total"] is not None:
        yield (snapshot.cluster, snapshot.group), reduced.result["total"]


def _worker_up(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("ping")
    if reduced is not None:
        for name in reduced.asked:
            yield (snapshot.cluster, snapshot.group, name), float(name in reduced.answered)


def _worker_state(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.workers:
        for state in State:
            yield (snapshot.cluster, snapshot.group, worker.name, state.value), float(worker.state == state.value)


def _worker_restarts(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for worker in snapshot.workers:
        for reason, count in worker.restarts.items():
            yield (snapshot.cluster, snapshot.group, worker.name, reason), count


def _resident_memory(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for name, resident_bytes in snapshot.resident_bytes.items():
        yield (snapshot.cluster, snapshot.group, name), resident_bytes


def _storage_messages(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("block_size")
    if reduced is not None:
        for state in ("pending", "processing", "dead"):
            if reduced.result[state] is not None:
                yield (snapshot.cluster, snapshot.group, state), reduced.result[state]


def _sinker_messages(snapshot: FleetSnapshot) -> Iterator[Sample]:
    reduced = snapshot.commands.get("workers")
    for row in reduced.result["rows"] if reduced is not None else ():
        for outcome, count in (row.get("sinker") or {}).items():
            if outcome in _OUTCOMES:
                yield (snapshot.cluster, snapshot.group, row["name"], outcome), count


def _collect_duration(snapshot: FleetSnapshot) -> Iterator[Sample]:
    yield (snapshot.cluster, snapshot.group), snapshot.collect_seconds


def _last_success(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for part, at in snapshot.last_success.items():
        yield (snapshot.cluster, snapshot.group, part), at


METRICS: tuple[Metric, ...] = (
    Metric(
        "kctl_consumer_lag",
        "gauge",
        _PARTITION,
        "Messages between the group's committed offset and the end of the partition; before the first commit, from the "
        "position of its worker.",
        _per_partition(lambda row: row.lag),
    ),
    Metric(
        "kctl_consumer_committed_offset",
        "gauge",
        _PARTITION,
        "The offset that the group has committed.",
        _per_partition(lambda row: row.committed),
    ),
    Metric(
        "kctl_consumer_position_offset",
        "gauge",
        _PARTITION,
        "The next offset that the partition's worker will read.",
        _per_partition(lambda row: row.position),
    ),
    Metric(
        "kctl_partition_start_offset",
        "gauge",
        _PARTITION,
        "The first offset that the brokers still have.",
        _per_partition(lambda row: row.start),
    ),
    Metric(
        "kctl_partition_end_offset",
        "gauge",
        _PARTITION,
        "The end of the partition: the offset of the next message; with `read_committed`, the last stable offset.",
        _per_partition(lambda row: row.end),
    ),
    Metric(
        "kctl_group_lag",
        "gauge",
        _GROUP,
        "The sum of the lags that are known.",
        _group_lag,
    ),
    Metric(
        "kctl_worker_up",
        "gauge",
        (*_GROUP, "worker"),
        "1 if the worker's agent answered a ping in the last collection, else 0.",
        _worker_up,
    ),
    Metric(
        "kctl_worker_state",
        "gauge",
        (*_GROUP, "worker", "state"),
        "1 for the state that the supervisor sees the worker in, 0 for the others: "
        + ", ".join(f"`{state.value}`" for state in State)
        + ".",
        _worker_state,
    ),
    Metric(
        "kctl_worker_restarts_total",
        "counter",
        (*_GROUP, "worker", "reason"),
        "How often the supervisor has started the worker again, by what had ended it.",
        _worker_restarts,
    ),
    Metric(
        "kctl_worker_resident_memory_bytes",
        "gauge",
        (*_GROUP, "worker"),
        "Resident memory of all processes of the worker together, its JVM included.",
        _resident_memory,
    ),
    Metric(
        "kctl_storage_messages",
        "gauge",
        (*_GROUP, "state"),
        "Messages in the storage: `pending`, `processing`, `dead`. A storage that workers share is counted once.",
        _storage_messages,
    ),
    Metric(
        "kctl_sinker_messages_total",
        "counter",
        (*_GROUP, "worker", "outcome"),
        "Messages that a sinker has settled since it started: `handled` (gone for good), `retried` (to come again), "
        "`dead` (dead letters), `lost` (its lease was lost meanwhile, so they are handled again).",
        _sinker_messages,
    ),
    Metric(
        "kctl_collect_duration_seconds",
        "gauge",
        _GROUP,
        "How long the last collection took, agents and brokers together.",
        _collect_duration,
    ),
    Metric(
        "kctl_collect_last_success_timestamp_seconds",
        "gauge",
        (*_GROUP, "part"),
        "Unix time when a part last succeeded: `agents` (all answered a ping); `committed` and `offsets` of the "
        "brokers.",
        _last_success,
    ),
)
