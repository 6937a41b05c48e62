"""A worker at work: keeps its membership, makes the query read what is assigned, commits what is stored.

One thread owns all of it and never waits long: it polls the group, looks after the query, commits. A revocation runs in
a thread of its own while that one waits for it inside `poll` (see `membership`); batches run on Spark's (see
`pipeline`), stats are published by another (`stats`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import AgentError
from kctl_agent.kafka_errors import describe
from kctl_agent.operations import Inbox, Operation, Outcome, is_paused
from kctl_agent.storage.base import Storage, StorageError, StoredOffset
from kctl_agent.worker.brokers import Brokers, BrokerView, BrokerWatcher
from kctl_agent.worker.commit_errors import refusal
from kctl_agent.worker.commits import Commits
from kctl_agent.worker.epochs import Epochs
from kctl_agent.worker.groups import Groups
from kctl_agent.worker.left_out import LeftOut
from kctl_agent.worker.membership import Fenced, Lost, Membership
from kctl_agent.worker.note import CommitNote, StorageId
from kctl_agent.worker.pipeline import Batch, Pipeline, Source
from kctl_agent.worker.positions import Found
from kctl_agent.worker.reading import Reading
from kctl_agent.worker.reported_error import GRACE_SECONDS, ReportedError
from kctl_agent.worker.seek import Plan, plan
from kctl_agent.worker.settings import WorkerSettings
from kctl_agent.worker.start_backoff import StartBackoff
from kctl_agent.worker.start_offsets import Decided, StartOffsets
from kctl_agent.worker.stats import Sources, WorkerStats
from kctl_agent.worker.unread_partitions import UnreadPartitions

__all__ = ["Worker"]

log = logging.getLogger("kctl_agent.worker")

POLL_SECONDS = 0.1
LEADERLESS_SECONDS = 15.0
"""A dead leader is noticed after 9 s (`broker.session.timeout.ms`), an election takes little. For a partition that has
no leader for longer the query is begun again without it."""
ABANDON_SECONDS = 30.0
"""A batch that runs for so long beside a partition without leader waits for its records: it is not waited for."""
STORAGE_CHECK_SECONDS = 5.0
"""So often a worker without a batch looks whether the storage still holds what was put into it."""
RESUME_FRACTION = 0.8
"""A throttled worker goes on when the storage holds less than this part of its limit, so that it does not flap."""


class Worker:
    """Everything but the session, the socket and the exit code. `run` is the main thread's."""

    def __init__(self, settings: WorkerSettings, stats: WorkerStats, storage: Storage, inbox: Inbox) -> None:
        self._settings = settings
        self._inbox = inbox
        self._operations: list[Operation] = []
        """Taken and not yet carried out, the oldest first."""
        self._stats = stats
        self._storage = storage
        self._stop_asked = False
        self._commits = Commits()
        self._epochs = Epochs()
        self._compared: BrokerView | None = None
        self._reached: dict[TopicPartition, int] = {}
        """Positions at the end of earlier queries; what a throttled or waiting worker still knows."""
        self._reading = Reading()
        self._groups = Groups()
        self._stored: deque[frozenset[TopicPartition]] = deque()
        """What batches have stored of since the last turn; filled by Spark's callback threads."""
        self._check_at = 0.0
        self._throttled_by: str | None = None
        self._left_out = LeftOut()
        self._unread = UnreadPartitions(stats)
        self._backoff = StartBackoff()
        self._error = ReportedError(stats.failed)
        self._pipeline = Pipeline(settings, self._storage, self._batch_done)
        self._start_offsets: StartOffsets | None = None
        self._brokers: Brokers | None = None
        self._watcher: BrokerWatcher | None = None
        self._membership: Membership | None = None

    def stop(self) -> None:
        """May be called from a signal handler and from any thread: it takes no lock, as an event would."""
        self._stop_asked = True

    def run(self) -> None:
        """Until `stop`. Raises BootstrapError, Fenced, or what cannot be healed from inside."""
        self._storage.prepare()
        self._pipeline.open()
        kafka = self._settings.kafka
        self._brokers = Brokers(kafka, self._settings.name)
        self._start_offsets = StartOffsets(self._settings, self._storage, self._brokers)
        self._stats.enter("joining")
        self._membership = Membership(
            kafka, self._settings.name, self._revoked, self._lost, self._commits.done, self._note
        )
        self._watcher = BrokerWatcher(self._brokers, lambda: self._membership.partitions if self._membership else ())
        self._stats.draw_from(
            Sources(
                member=lambda: self._membership.info if self._membership else None,
                brokers=lambda: self._watcher.view if self._watcher else BrokerView(),
                positions=self._positions_by_partition,
                committed=lambda: {tp: offset for tp, offset in self._commits.known.items() if not self._is_void(tp)},
                query_id=lambda: self._pipeline.query_id,
                batch_started_at=lambda: self._pipeline.batch_started_at,
                reset=self._settings.kafka.auto_offset_reset,
            )
        )
        self._watcher.start()
        try:
            while not self._stop_asked:
                self._turn(self._membership)
        except Fenced as error:
            self._stats.happened("fenced", str(error))
            self._stop_query(0.0)  # at once: another member reads these partitions now
            raise

    def close(self) -> None:
        """Leave in order: the batch ends, its offsets are committed, the group is left, the JVM ends."""
        self._stats.enter("stopping")
        if self._watcher:
            self._watcher.stop()
        steps: list[Callable[[], None]] = [self._pipeline.close]
        if self._brokers:
            steps.insert(0, self._brokers.close)
        if self._membership:
            steps.insert(0, self._membership.close)  # calls _revoked, commits, leaves
        for step in steps:
            try:
                step()
            except Exception as error:  # a broker or a JVM that is gone must not keep the others from being left
                log.warning("while stopping: %s: %s", type(error).__name__, str(error).split("\n")[0])

    def _turn(self, membership: Membership) -> None:
        try:
            membership.poll(POLL_SECONDS)
        except KafkaError as error:
            text = self._describe(error, f"group {self._settings.kafka.group} cannot be polled")
            self._error.tolerate("poll", text, time.monotonic())
        else:
            self._error.resolve("poll")
        if membership.is_rebalancing:
            self._stats.enter("rebalancing")
        self._commit(membership)
        if not self._is_held_by_operations(membership):
            self._look_after_query(membership)

    def _is_held_by_operations(self, membership: Membership) -> bool:
        """Carry out what was ordered; True while the query must be left alone for it."""
        self._operations += self._inbox.take()
        while self._operations:
            operation = self._operations[0]
            try:
                outcome = self._carried_out(operation, membership)
            except KafkaError as error:
                outcome = Outcome("failed", self._describe(error, f"{operation.rpc} failed"))
            except (AgentError, Lost) as error:
                outcome = Outcome("failed", str(error))
            if outcome.state == "running":
                return operation.rpc == "seek"
            self._inbox.report(operation.id, outcome)
            log.info("operation %s, %s: %s", operation.id, outcome.state, outcome.text)
            del self._operations[0]
        return False

    def _carried_out(self, operation: Operation, membership: Membership) -> Outcome:
        """Called every turn until it is no longer `running`."""
        if operation.rpc == "pause":
            read = [tp for tp in self._pipeline.sources or () if is_paused(self._inbox.paused, tp.topic, tp.partition)]
            return Outcome("running", "the running batch is finished first") if read else Outcome("done", "so it is")
        tp = TopicPartition(operation.params["topic"], operation.params["partition"])
        if tp not in membership.partitions:
            return Outcome("failed", f"{tp.topic}-{tp.partition} is not with {self._settings.name} now")
        assert self._brokers is not None
        brokers = self._brokers
        found = brokers.found([tp])[0][tp]
        seeking = plan(operation.params["to"], found, self._position(tp, found), lambda at: brokers.offset_at(tp, at))
        if operation.params.get("dry_run"):
            return Outcome("done", seeking.sentence, seeking.to_json())
        if membership.is_rebalancing or not self._pipeline.drain():
            return Outcome("running", "the running batch is finished first")
        self._commit(membership)  # of what has just been put, so that the plan begins where reading has ended
        seeking = replace(seeking, position=self._position(tp, found))
        self._stop_query(0.0)
        self._seek(membership, tp, found, seeking)
        return Outcome("done", seeking.sentence, seeking.to_json())

    def _describe(self, error: KafkaError, what: str) -> str:
        return describe(error, what, self._settings.kafka.bootstrap_servers)

    def _position(self, tp: TopicPartition, found: Found) -> int | None:
        """The next offset that would be stored: what the query has reached, else the stored offset, else what is
        committed."""
        reached = self._pipeline.positions.get(tp)
        if reached is not None:
            return reached
        stored = self._storage.stored_offsets([tuple(tp)]).get(tuple(tp))
        return stored.next if stored is not None and stored.topic_id == found.topic_id else found.committed

    def _seek(self, membership: Membership, tp: TopicPartition, found: Found, seeking: Plan) -> None:
        """The group first: if the broker refuses, nothing has changed; killed in between, or if the stored offset has
        moved, the next start sees a reset."""
        stored_offsets = self._storage.stored_offsets([tuple(tp)])
        stored = stored_offsets.get(tuple(tp))
        if refused := membership.commit({tp: seeking.target}, is_reset=True):
            raise refused[tp](f"the group cannot be reset: {refusal(refused)}")
        topic_id = found.topic_id or (stored.topic_id if stored else None)
        try:
            self._storage.init_offsets([StoredOffset(tp.topic, tp.partition, topic_id, seeking.target)], stored_offsets)
        except StorageError as error:
            later = (
                f"the group is reset to {seeking.target}, and reading goes on there as soon as the storage can be used"
            )
            raise StorageError(f"{error}; {later}") from error
        self._commits.done({tp: seeking.target})
        self._reached = {**self._reached, tp: seeking.target}
        if seeking.skipped or seeking.again:
            kind = "skipped" if seeking.skipped else "rewound"
            self._stats.happened(kind, f"on request: {seeking.sentence}", tp, (seeking.position or 0, seeking.target))

    def _look_after_query(self, membership: Membership) -> None:
        """Make the query read what is assigned, as long as the storage has room."""
        paused = self._inbox.paused
        wanted = frozenset(tp for tp in membership.partitions if not is_paused(paused, tp.topic, tp.partition))
        self._left_out.keep(membership.partitions, time.monotonic())
        self._unread.left_out(self._left_out.lasting(GRACE_SECONDS, time.monotonic()))
        self._unread.isolated(self._groups.isolated())
        while self._stored:
            self._groups.stored(self._stored.popleft())
        plan = self._groups.plan(wanted - self._unreadable(), time.monotonic())
        self._stop_outdated(plan)
        self._check_queries(plan)
        running = self._pipeline.sources
        if running is None and membership.partitions and not wanted:
            self._stats.enter("paused")
        for group in plan:
            if group.isdisjoint(running or ()) and self._is_due(group) and not self._is_full():
                self._start_query(membership, group)
                return  # to start one may take long, and the group must be polled

    def _is_due(self, group: frozenset[TopicPartition]) -> bool:
        now = time.monotonic()
        return self._backoff.is_due(now) and self._groups.is_due(group, now)

    def _stop_outdated(self, plan: Collection[frozenset[TopicPartition]]) -> None:
        """Let queries end that read other partitions than they should or a topic that was made again, are held by an
        operation that came to nothing, or have to wait for room."""
        running = self._pipeline.sources
        if running is None:
            return
        is_recreated = self._reading.is_recreated(running, self._view)
        is_leaderless = self._reading.is_without_leader(running, self._view, LEADERLESS_SECONDS)
        groups = self._pipeline.groups
        if not is_recreated and not is_leaderless and not self._is_full():
            groups = (groups - set(plan)) | self._pipeline.draining
        for group in groups:
            if self._pipeline.drain(group) or self._reading.is_without_leader(running, self._view, ABANDON_SECONDS):
                self._stop_query(0.0, group)

    def _unreadable(self) -> frozenset[TopicPartition]:
        """What is left out and cannot be taken in again yet."""
        return self._left_out.still(frozenset(self._view.ends), time.monotonic())

    @property
    def _view(self) -> BrokerView:
        """What the brokers reported last."""
        return self._watcher.view if self._watcher else BrokerView()

    def _is_void(self, tp: TopicPartition) -> bool:
        return self._reading.is_void(tp, self._view)

    def _is_full(self) -> bool:
        """Whether the storage has no room for another batch, or not enough to go on after it had none."""
        before = self._throttled_by
        why = self._stats.why_full(RESUME_FRACTION if before else 1.0)
        if why is not None:
            self._stats.enter("throttled")
            if before is None:
                self._stats.happened("throttled", f"takes no new batch: {why}")
        if why != before:
            self._throttled_by = why
            self._stats.is_throttled_by(why)
        return why is not None

    def _start_query(self, membership: Membership, wanted: frozenset[TopicPartition]) -> None:
        """Decide, set the stored offsets, commit, read: in this order. A worker that is frozen after any of the steps
        finds itself refused at the next one, by the stored offset's version or by the group's coordinator."""
        if self._pipeline.sources is None:
            self._stats.enter("assigned")
        assert self._start_offsets is not None
        try:
            decided = self._start_offsets.decide(wanted, self._epochs.known)
            readable = wanted & decided.found.keys()
            self._start_offsets.place(decided)
            self._begin(decided, readable)
            unanswered = {tp: why for tp, why in decided.unanswered.items() if tp in wanted}
            if first := decided.first_commits(readable):
                refused = membership.commit(first)
                self._commits.done({tp: at for tp, at in first.items() if tp not in refused})
                readable -= refused.keys()
                unanswered |= {tp: refusal({tp: error}) for tp, error in refused.items()}
                if not readable:
                    raise next(iter(refused.values()))(refusal(refused))
            self._pipeline.start({tp: decided.source(tp) for tp in readable})
        except Lost:
            self._lost()
            return
        except (KafkaError, StorageError) as error:
            self._epochs.give_up(wanted)  # with the next try the notes count again: nothing was committed since
            what = f"cannot begin to read {_topics(wanted)}"
            self._retry_later(self._describe(error, what) if isinstance(error, KafkaError) else f"{what}: {error}")
            return
        self._left_out.add(unanswered, time.monotonic())
        self._left_out.take_in(readable)
        log.info("reads %s", {f"{tp.topic}-{tp.partition}": decided.source(tp).start for tp in sorted(readable)})
        self._commit(membership)
        self._stats.enter("running")

    def _begin(self, decided: Decided, readable: frozenset[TopicPartition]) -> None:
        """Report what has moved; from here on the logs and offsets that were found are the ones that count."""
        for tp, moved in decided.moves:
            text = moved.sentence(f"{tp.topic}-{tp.partition}")
            self._stats.happened(moved.kind, text, tp, (moved.from_offset, moved.to_offset))
        found = {tp: decided.found[tp] for tp in readable}
        recreated = {tp for tp, moved in decided.moves if moved.kind == "topic_recreated"}
        self._reading.began({tp: at.topic_id for tp, at in found.items()}, recreated, time.monotonic())
        self._epochs.began({tp: at.seen for tp, at in found.items()})
        committed = {tp: at.committed for tp, at in found.items() if at.committed is not None}
        assigned = self._membership.partitions if self._membership else frozenset()
        others = {tp: at for tp, at in self._commits.known.items() if tp in assigned - readable}
        self._commits.found({**others, **committed})

    def _note(self, tp: TopicPartition) -> str:
        """What is committed with an offset; on kafka-python's I/O thread too."""
        storage = self._start_offsets.identity if self._start_offsets else StorageId("", "")
        return CommitNote(storage, self._reading.topic_id(tp), self._epochs.seen(tp)).format()

    def _check_queries(self, plan: Collection[frozenset[TopicPartition]]) -> None:
        for group, failure in self._pipeline.failures().items():
            why, is_storage = failure.text, failure.is_storage  # the storage's is everybody's, whatever they read
            self._stop_query(0.0, group)
            if self._pipeline.sources is None:
                self._stats.enter("assigned")
            failures, seconds = self._groups.failed(group, why, time.monotonic(), may_split=not is_storage)
            self._report_retry(why, failures, seconds, is_storage=is_storage)
            self._stats.query_failed(why, is_first=failures == 1)
        running = self._pipeline.sources
        if running is not None:
            if running.keys() == frozenset().union(*plan) and self._pipeline.has_settled(GRACE_SECONDS):
                # Nothing has failed for a while; no batch may come for long that could show it.
                self._error.resolve("query")
            self._check_logs(running)

    def _check_logs(self, running: Mapping[TopicPartition, Source]) -> None:
        view = self._view
        self._compare_logs(running, view)
        self._check_storage()
        for tp, (begin, start) in self._reading.lost(running, self._pipeline.positions, view).items():
            text = (
                f"{tp.topic}-{tp.partition}: {start - begin} offsets from {begin} on were removed by retention "
                "before they were read"
            )
            self._stats.happened("records_lost", text, tp, (begin, start))

    def _check_storage(self) -> None:
        """If the storage holds less than was put into it, let the query end: the next one reads it again. A put would
        notice it, too, but a partition may be quiet for long."""
        if time.monotonic() < self._check_at or self._pipeline.batch_started_at is not None:
            return
        self._check_at = time.monotonic() + STORAGE_CHECK_SECONDS
        positions = self._pipeline.positions  # before the stored offsets are read, which are never behind it
        try:
            stored_offsets = self._storage.stored_offsets([tuple(tp) for tp in positions])
        except StorageError as error:
            log.debug("whether the storage has gone back is not known: %s", error)
            return
        if any(
            (stored := stored_offsets.get(tuple(tp))) is None or stored.next < position
            for tp, position in positions.items()
        ):
            self._pipeline.drain()

    def _compare_logs(self, running: Mapping[TopicPartition, Source], view: BrokerView) -> None:
        """If the log of a partition was truncated below what is read of it, let the query end: the next one begins
        where the log differs. A broker is asked only when another one leads than before."""
        if view is self._compared:
            return
        self._compared = view
        assert self._brokers is not None
        known, logs = self._epochs.known, {tp: seen for tp, seen in view.logs.items() if tp in running}
        try:
            diverged, unknown = self._brokers.divergences_of_each(known, logs)
        except KafkaError as error:
            log.debug("which log it is is not known yet: %s", error)
            return
        planned = self._pipeline.planned
        cut = {tp for tp, offset in diverged.items() if offset < planned.get(tp, offset)}
        if cut:
            self._pipeline.drain()
        self._epochs.observe({tp: seen for tp, seen in logs.items() if tp not in cut and tp not in unknown})

    def _retry_later(self, error: str) -> None:
        seconds = self._backoff.failed(time.monotonic())
        self._report_retry(error, self._backoff.failures, seconds)

    def _report_retry(self, error: str, failures: int, seconds: float, *, is_storage: bool = False) -> None:
        """The first failure may be one that the next try heals, and is only logged. Not that of a batch which could not
        be stored: its messages are there, and how they are stored after all shows that the error is overcome."""
        if failures > 1 or is_storage:
            self._error.report("query", f"{error}; next try in {seconds:.0f} s")
        else:
            log.warning("%s; tried again in %.0f s", error, seconds)

    def _stop_query(
        self, wait_seconds: float, group: frozenset[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Of this group, or all."""
        ends = self._pipeline.stop(wait_seconds, group)
        self._reached = {**self._reached, **ends}
        return ends

    def _positions_by_partition(self) -> dict[TopicPartition, int | None]:
        """Of everything that is assigned, whether a query reads it just now or not; on the stats' thread."""
        reached = {**self._reached, **self._pipeline.positions}
        assigned = self._membership.partitions if self._membership else ()
        return {tp: None if self._is_void(tp) else reached.get(tp) for tp in assigned}

    def _batch_done(self, batch: Batch) -> None:
        """On Spark's callback thread."""
        self._backoff.reset()
        self._stored.append(frozenset(batch.ends))
        self._stats.batch(batch)

    def _commit(self, membership: Membership) -> None:
        """Commit what is stored; what fails is tried again with the next turn, or at the revocation."""
        waiting = self._commits.waiting(membership.partitions, time.monotonic())
        positions = {tp: position for tp, position in self._pipeline.positions.items() if tp not in waiting}
        ends = self._commits.due(positions)
        if not ends and self._commits.is_quiet:
            ends = self._epochs.uncommitted(positions)
        if not ends or membership.is_rebalancing:
            return
        try:
            refused = membership.commit(ends)
        except Lost:
            self._lost()
        except KafkaError as error:
            text = self._describe(error, f"offsets of {_topics(ends)} are stored, not yet committed")
            self._error.tolerate("commit", text, time.monotonic())
        else:
            self._commits.answered(ends, refused, time.monotonic())
            self._epochs.committed(ends.keys() - refused.keys())
            if refused:
                self._error.tolerate("commit", f"{refusal(refused)}; the other partitions are", time.monotonic())
            elif not self._commits.is_refused:
                self._error.resolve("commit")

    def _revoked(self, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:
        """In a thread of its own, while the I/O loop goes on with the heartbeats."""
        if not partitions:
            return {}
        self._epochs.give_up(partitions)
        log.info("revoked: %s", sorted(f"{tp.topic}-{tp.partition}" for tp in partitions))
        if self._stats.state != "stopping":
            self._stats.enter("rebalancing")
        return self._commits.due(self._stop_query(self._settings.pipeline.revoke_timeout_seconds))

    def _lost(self) -> None:
        self._epochs.give_up(self._epochs.known)
        self._stats.happened("lost", "the group went on without this worker; it joins again")
        self._stop_query(0.0)


def _topics(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({tp.topic for tp in partitions}))
