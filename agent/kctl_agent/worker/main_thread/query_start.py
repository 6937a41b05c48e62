"""Starts a query in four steps: decides on offsets, stores them, commits them and begins reading. If a worker freezes
and loses its partitions, the storage or the group coordinator rejects a later step."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, LeaderNotAvailableError

from kctl_agent.errors import StorageError
from kctl_agent.process import deadline
from kctl_agent.process.outages import outage
from kctl_agent.process.tracebacks import first_line
from kctl_agent.spark.driver import DriverLost
from kctl_agent.spark.session import lost_jvm
from kctl_agent.worker.consumer_group.commits import refusal
from kctl_agent.worker.consumer_group.membership import Membership, partition_names, topics_of
from kctl_agent.worker.lifecycle.machine import Action, Lifecycle
from kctl_agent.worker.offsets.positions import Moved
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.offsets.start_offsets import Decided, StartOffsets
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.transform import TransformFailed
from kctl_agent.worker.stats import WorkerStats

log = logging.getLogger("kctl_agent.worker")

JVM_SECONDS = 15.0
"""A healthy JVM starts a query within this time; with a shorter limit it would seem to hang."""


@dataclass(eq=False)
class QueryStart:
    _lifecycle: Lifecycle
    _pipeline: Pipeline
    _start_offsets: StartOffsets
    _membership: Membership
    _progress: ReadProgress
    _stats: WorkerStats
    _describe: Callable[[KafkaError, str], str]
    _reported: set[tuple[TopicPartition, Moved]] = field(default_factory=set)
    """Moves that failed starts have reported already; a retry finds them again."""

    def start(self, wanted: frozenset[TopicPartition], *, is_careful: bool = False) -> list[Action]:
        """Starts a query of the `wanted` partitions that can be read. Raises MemberLost, MemberFenced, BootstrapError.
        Raises Py4J's errors if this process's JVM has ended."""
        try:
            return self._start(wanted, is_careful=is_careful)
        except Exception as error:
            if not _may_pass(error):
                raise
            self._progress.epochs.give_up(wanted)  # the next try compares with the notes again: nothing was committed
            what = f"cannot begin to read {topics_of(wanted)}"
            if isinstance(error, DriverLost):
                return self._lifecycle.driver_ended(f"{what}: {error}")
            is_of_kafka = isinstance(error, KafkaError)
            why = self._describe(error, what) if is_of_kafka else f"{what}: {first_line(error)}"
            return self._lifecycle.start_failed(wanted, why, outage(error), time.monotonic())

    def _start(self, wanted: frozenset[TopicPartition], *, is_careful: bool) -> list[Action]:
        decided = self._start_offsets.decide(wanted, self._progress.epochs.known)
        readable = wanted.intersection(decided.found)
        self._start_offsets.place(decided)
        self._report(decided)
        self._progress.began(decided, readable, self._membership.partitions, time.monotonic())
        unanswered = {tp: why for tp, why in decided.unanswered.items() if tp in wanted}
        refused = self._commit_first(decided, readable)
        readable = readable.difference(refused)
        unanswered |= {tp: refusal({tp: error}) for tp, error in refused.items()}
        if not readable:
            if refused:
                raise next(iter(refused.values()))(refusal(refused))
            raise LeaderNotAvailableError(unanswered[min(unanswered)] if unanswered else "no partition answers")
        sources = {tp: decided.source(tp) for tp in readable}
        if not deadline.allows(JVM_SECONDS):
            raise KafkaTimeoutError("the start of a query")
        fewer = self._pipeline.limit_kept_consumers(self._membership.partition_counts)
        if fewer is not None:
            self._stats.happened("consumers_not_kept", fewer)
        self._pipeline.start(sources, is_careful=is_careful)
        self._reported.clear()
        log.info(
            "%s %s",
            "reads carefully" if is_careful else "reads",
            partition_names(readable, {tp: source.start for tp, source in sources.items()}),
        )
        return self._lifecycle.query_started(readable, unanswered, time.monotonic())

    def _report(self, decided: Decided) -> None:
        for tp, moved in decided.moves:
            if (tp, moved) in self._reported:
                continue
            self._reported.add((tp, moved))
            text = moved.sentence(f"{tp.topic}-{tp.partition}")
            self._stats.happened(moved.kind, text, tp, (moved.from_offset, moved.to_offset))

    def _commit_first(
        self, decided: Decided, readable: frozenset[TopicPartition]
    ) -> dict[TopicPartition, type[KafkaError]]:
        first = {tp: start.offset for tp, start in decided.starts.items() if tp in readable and start.must_commit}
        if not first:
            return {}
        refused = self._membership.commit(first)
        self._progress.commits.done({tp: at for tp, at in first.items() if tp not in refused})
        return refused


def _may_pass(error: Exception) -> bool:
    if isinstance(error, (KafkaError, StorageError, DriverLost, TransformFailed)):
        return True
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, (OSError, Py4JError, PySparkException)) and lost_jvm(error) is None
