"""The progress of an application's queries, from its JSON, where any field may be missing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.partitions import MemberReply, PartitionReply, PartitionsReply, lag_of
from kctl_agent.replies.workers import WorkerReply
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
    """The state of an application's queries. For one thread."""

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
        """Adds the last batch. Spark no longer shows batches that ended before it, so offsets count their rows."""
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

    def partitions(self) -> set[Partition]:
        return set(self.positions())

    def positions(self) -> dict[Partition, int]:
        """End offsets of the last finished batches. If two queries read a partition, the lower one counts."""
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
        last = max((query for _, query in queries), key=lambda query: query.batch_id or -1, default=None)
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
        member = None if self._group is None else self._member(self._group, names)
        partitions = tuple(self._partition(each, positions[each], age) for each in names)
        return Snapshot(now, worker, replies=(member, PartitionsReply(partitions)))

    def _member(self, group: str, names: Iterable[Partition]) -> MemberReply:
        assigned = tuple(TopicPartition(*each) for each in names)
        return MemberReply(worker=self._name, group=group, assignor="none", partitions=assigned)

    def _partition(self, partition: Partition, position: int, age: float | None) -> PartitionReply:
        start, end = self._starts.get(partition), self._ends.get(partition)
        committed = self._committed.get(partition, position)
        lag = lag_of(start, committed, position, end)
        offsets = start, committed, position, end, lag
        return PartitionReply(*partition, *offsets, age_seconds=age, stored_messages=0)


def sources_of(progress: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in progress.get("sources") or () if _KAFKA.search(str(each.get("description", "")))]


def offsets_of(offsets: object) -> dict[Partition, int]:
    """Parses `{"orders": {"0": 17}}`, an object or, in some versions, its text; empty for anything else."""
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
