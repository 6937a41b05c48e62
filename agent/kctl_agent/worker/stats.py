"""The snapshot of a worker. Making it calls neither the JVM nor the storage, because either may hang."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

from kctl_agent.errors import StorageError
from kctl_agent.process.stats import StoringStats
from kctl_agent.replies.fields import TopicPartition as Assigned
from kctl_agent.replies.partitions import BrokersReply, PartitionReply, PartitionsReply, TopicsReply, lag_of
from kctl_agent.replies.workers import UnreadPartition
from kctl_agent.rpc.operations import Inbox, is_paused
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.limits import TableStats, why_full
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.offsets.brokers import BrokerView, BrokerWatcher
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Batch

LONG_BATCH_SECONDS = 15.0  # a longer batch is checked regularly for progress in storing


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a worker that the publishing thread reads. Reading them must not block."""

    member: Membership
    watcher: BrokerWatcher
    pipeline: Pipeline
    progress: ReadProgress
    reset: str = "earliest"


class WorkerStats(StoringStats):
    def __init__(self, name: str, server: AgentServer, storage: OffsetStore, inbox: Inbox) -> None:
        super().__init__(name, server, storage, inbox)
        self._timestamps: dict[TopicPartition, float] = {}
        self.sources: Sources | None = None
        self._throttled_by: str | None = None
        self._left_out: Mapping[TopicPartition, str] = {}
        self._isolated: Mapping[TopicPartition, UnreadPartition] = {}
        self._long_batch_seen_at = 0.0
        self._stored_offsets: dict[tuple[str, int], int] = {}

    def why_full(self, share: float) -> str | None:
        counted = self._storage_stats  # the counting thread sets it
        return None if counted is None else why_full(counted, share)

    def is_throttled_by(self, why: str | None) -> None:
        self._throttled_by = why
        self._wake.set()

    def leaves_out(self, now: Mapping[TopicPartition, str]) -> None:
        before, self._left_out = self._left_out, now
        self._changed("partition_left_out", now, before, "is not read: {}; the other partitions are read")
        self._changed("partition_taken_in", before, now, "is no longer left out")

    def isolates(self, now: Mapping[TopicPartition, UnreadPartition]) -> None:
        before, self._isolated = self._isolated, now
        found = {tp: f"offset {each.offset}: {each.why}" for tp, each in now.items()}
        self._changed("partition_isolated", found, before, "cannot be read from {}")
        self._changed("partition_released", dict.fromkeys(before, ""), now, "is no longer isolated")

    def _changed(
        self, kind: str, found: Mapping[TopicPartition, str], besides: Mapping[TopicPartition, object], what: str
    ) -> None:
        for tp in sorted(found.keys() - besides):
            self.happened(kind, f"{tp.topic}-{tp.partition} {what.format(found[tp])}", tp)
        if found.keys() != besides.keys():
            self._wake.set()

    def query_failed(self, why: str, *, is_first: bool) -> None:
        with self._lock:
            self._queries_failed += 1
        if is_first:
            self.happened("query_failed", why)

    def batch(self, batch: Batch) -> None:
        now = time.monotonic()
        with self._lock:
            self._recent.append((now, batch.rows))
            self._timestamps = {**self._timestamps, **batch.last_timestamps}
            self._rows_total += batch.rows
            self._batches_total += 1
            self._batch_seconds_total += batch.seconds
            self._progress += 1
            self._worker = replace(
                self._worker, batch_id=batch.batch_id, last_batch_seconds=batch.seconds, last_batch_rows=batch.rows
            )
        self.works("query")
        self._wake.set()
        self._count_now.set()

    def _beside_counting(self) -> None:
        super()._beside_counting()
        sources = self.sources
        if sources is not None and self._has_long_batch_stored(sources):
            with self._lock:
                self._progress += 1

    def _snapshot(self) -> Snapshot:
        sources = self.sources
        with self._lock:
            if sources is None:
                return self._common("worker")
            view, member = sources.watcher.view, sources.member.info
            self._batch_started_at = sources.pipeline.batch_started_at
            common, partitions = self._common("worker"), self._partitions(sources, view, member.generation)
            tps, paused = [(each.topic, each.partition) for each in partitions], self._inbox.paused
            unread = {*self._left_out, *self._isolated}
            replies = (
                replace(member, worker=self._name, partitions=tuple(Assigned(*tp) for tp in tps)),
                PartitionsReply(partitions),
                None if view.brokers is None else BrokersReply(view.brokers),
                None if view.topics is None else TopicsReply(view.topics),
            )
            left_out = [UnreadPartition(tp.topic, tp.partition, why) for tp, why in sorted(self._left_out.items())]
            worker = replace(
                common.worker,
                query_id=sources.pipeline.query_id,
                last_error=common.worker.last_error or self._throttled_by or self._what_is_not_read(),
                left_out=tuple(left_out),
                isolated=tuple(each for _, each in sorted(self._isolated.items())),
            )
            not_read = frozenset(tp for tp in tps if tp in unread or is_paused(paused, *tp))
            return replace(common, replies=(*common.replies, *replies), not_read=not_read, worker=worker)

    def _what_is_not_read(self) -> str | None:
        reasons = {tp: f"offset {each.offset}: {each.why}" for tp, each in self._isolated.items()} | dict(
            self._left_out
        )
        texts = [f"{tp.topic}-{tp.partition} is not read: {why}" for tp, why in sorted(reasons.items())]
        return "; ".join(texts)[:500] or None

    def _partitions(self, sources: Sources, view: BrokerView, generation: int | None) -> tuple[PartitionReply, ...]:
        committed_offsets = sources.progress.committed(view)
        positions = sources.progress.positions(sources.member.partitions, sources.pipeline.positions, view)
        has_read_since = bool(self._recent) and self._recent[-1][0] > (view.taken_at or 0.0)
        age = None if view.taken_at is None else max(time.monotonic() - view.taken_at, 0.0)
        in_storage = self._in_storage()

        def row(tp: TopicPartition, position: int | None) -> PartitionReply:
            start, committed = view.starts.get(tp), committed_offsets.get(tp)
            end = _end(view.ends.get(tp), position if has_read_since else None)
            lag = lag_of(start, committed, position, end, sources.reset)
            timestamp = self._timestamps.get(tp)
            offsets = start, committed, position, end, lag, timestamp
            return PartitionReply(tp.topic, tp.partition, *offsets, generation or 0, age, *in_storage(tp))

        return tuple(row(tp, position) for tp, position in sorted(positions.items()))

    def _in_storage(self) -> Callable[[TopicPartition], tuple[int | None, float | None]]:
        stats, counted_at = self._storage_stats, self._counted_at
        if stats is None or counted_at is None:
            return lambda _: (None, None)  # before the first count
        passed = time.monotonic() - counted_at
        known = (
            {} if isinstance(stats, TableStats) else {(each.topic, each.partition): each for each in stats.partitions}
        )

        # Unfinished messages, and the oldest message's age. A table has none.
        def found(tp: TopicPartition) -> tuple[int, float | None]:
            of_one = known.get(tp)
            oldest = None if of_one is None else of_one.oldest_seconds
            return (0 if of_one is None else of_one.unfinished), (None if oldest is None else oldest + passed)

        return found

    def _has_long_batch_stored(self, sources: Sources) -> bool:
        now, started = time.monotonic(), sources.pipeline.batch_started_at
        if started is None or now - max(started, self._long_batch_seen_at) < LONG_BATCH_SECONDS:
            return False
        self._long_batch_seen_at = now
        try:
            stored_offsets = self._storage.stored_offsets([tuple(tp) for tp in sources.member.partitions])
        except StorageError:
            return False  # counting reports it
        before, self._stored_offsets = self._stored_offsets, {tp: stored.next for tp, stored in stored_offsets.items()}
        return before != self._stored_offsets


def _end(known: int | None, read: int | None) -> int | None:
    return None if known is None else max(known, read or 0)  # a batch may have read further since the last report
