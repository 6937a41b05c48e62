"""What the engine's JVM holds, where workers share one. Its process is among those of `of_workers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kctl.exporter.metric import GROUP, Metric, Sample, Single
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.replies.workers import EngineStats

__all__ = ["METRICS"]


def _of_engine(value_of: Callable[[EngineStats], float | None]) -> Callable[[FleetSnapshot], Iterator[Sample]]:
    def samples(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in snapshot.workers.result.rows:
            value = None if row.engine is None else value_of(row.engine)
            if value is not None:
                yield (snapshot.cluster, snapshot.group), value

    return samples


METRICS: tuple[Metric, ...] = (
    Single(
        name="kctl_engine_workers",
        labels=GROUP,
        unit="workers",
        sentence="So many workers have a gateway into the engine's JVM.",
        samples=_of_engine(lambda stats: stats.workers),
    ),
    Single(
        name="kctl_engine_queries",
        labels=GROUP,
        unit="queries",
        sentence="Streaming queries that are active in the engine's JVM, also those of workers that have just ended.",
        samples=_of_engine(lambda stats: stats.queries),
    ),
    Single(
        name="kctl_engine_heap_used_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="The heap that the engine's JVM uses, garbage that was not collected yet included.",
        samples=_of_engine(lambda stats: stats.heap_used_bytes),
    ),
    Single(
        name="kctl_engine_heap_max_bytes",
        labels=GROUP,
        unit="bytes",
        sentence="The most heap that the engine's JVM may use.",
        samples=_of_engine(lambda stats: stats.heap_max_bytes),
    ),
)
