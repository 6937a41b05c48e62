"""The state machine of a worker: events in, actions out.

Pure: no clock, no Spark, no Kafka, no storage; times are the caller's monotonic seconds. `Lifecycle.on` takes one event
and returns the actions that follow, to be carried out in their order; what they come to is reported as further events.
`main_thread.main_loop` does both. Events are facts; decisions are taken at `Tick` (what has to end) and `StartDue`
(what may begin), so that one turn never does more than one slow thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka import TopicPartition

from kctl_agent.worker.lifecycle import events
from kctl_agent.worker.lifecycle.events import NONE, Action, LifecycleEvent, Phase, WorkerState
from kctl_agent.worker.lifecycle.left_out import LeftOut
from kctl_agent.worker.lifecycle.query_groups import Group, QueryGroups


class Lifecycle:
    """The state of a worker and its queries. For the main thread, or that of a revocation while it waits for it."""

    def __init__(self) -> None:
        self.state = WorkerState.JOINING
        self.queries: Mapping[Group, Phase] = {}
        """Queries by their partitions; replaced, never changed in place."""
        self.is_seeking = False
        self._polled = events.Polled(NONE)
        self._paused = NONE
        self._logs = events.LogsObserved()
        self._storage = events.StorageCounted()
        self._failed: dict[Group, events.QueryFailed] = {}
        """Queries that have failed since the last tick."""
        self._throttled_by: str | None = None
        self._plan: list[Group] = []
        """The queries that there should be, as of the last tick."""
        self._groups = QueryGroups()
        self._left_out = LeftOut()
        self._rules: dict[type[LifecycleEvent], Callable[..., list[Action]]] = {
            events.Polled: self._on_polled,
            events.Paused: self._on_paused,
            events.Revoked: self._on_revoked,
            events.Lost: self._on_lost,
            events.Fenced: self._on_fenced,
            events.LogsObserved: self._on_logs,
            events.StorageCounted: self._on_storage,
            events.BatchStored: self._on_batch,
            events.QueryStarted: self._on_started,
            events.StartFailed: self._on_start_failed,
            events.QueryFailed: self._on_query_failed,
            events.Draining: self._on_draining,
            events.DriverEnded: self._on_driver_ended,
            events.Drained: self._on_drained,
            events.SeekRequested: self._on_seek_requested,
            events.SeekBegun: self._on_seek_begun,
            events.SeekEnded: self._on_seek_ended,
            events.Tick: self._on_tick,
            events.StartDue: self._on_start_due,
            events.StopRequested: self._on_stop,
        }

    def on(self, event: LifecycleEvent, now: float) -> list[Action]:
        """Returns the actions that follow from an event, in their order. The first event of a worker is `Polled`."""
        return self._rules[type(event)](event, now)

    @property
    def reading(self) -> Group:
        """The partitions that queries read now."""
        return NONE.union(*self.queries)

    @property
    def is_complete(self) -> bool:
        """Whether queries read every partition that they should."""
        return bool(self.queries) and self.reading == NONE.union(*self._plan)

    @property
    def is_drained(self) -> bool:
        """Whether no batch runs or will, while this member keeps its partitions in the group."""
        return not self._polled.is_rebalancing and all(phase is Phase.DRAINED for phase in self.queries.values())

    def left_out(self, seconds: float, now: float) -> dict[TopicPartition, str]:
        """Returns the partitions that have been left out for so long because no leader answers for them, and why."""
        return self._left_out.lasting(seconds, now)

    def isolated(self) -> dict[TopicPartition, str]:
        """Returns the partitions whose query fails while they are alone in it, and why."""
        return self._groups.isolated()

    def _on_polled(self, event: events.Polled, _now: float) -> list[Action]:
        if event.is_rebalancing:
            self._polled = events.Polled(NONE, is_rebalancing=True)
            return self._enter(WorkerState.REBALANCING)
        self._polled = event
        return [self._commit()]

    def _on_paused(self, event: events.Paused, _now: float) -> list[Action]:
        self._paused = event.partitions
        return []

    def _on_revoked(self, event: events.Revoked, _now: float) -> list[Action]:
        if not event.partitions:
            return []
        stopped = self._stop_reading(events.Polled(NONE, is_rebalancing=True), is_waited_for=True)
        return [*self._enter(WorkerState.REBALANCING), *stopped]

    def _on_lost(self, _event: events.Lost, _now: float) -> list[Action]:
        stopped = self._stop_reading(events.Polled(NONE, is_rebalancing=self._polled.is_rebalancing))
        return [events.ReportEvent("lost", "the group went on without this worker; it joins again"), *stopped]

    def _on_fenced(self, event: events.Fenced, _now: float) -> list[Action]:
        return [events.ReportEvent("fenced", event.why), *self._stop_reading(events.Polled(NONE))]

    def _on_logs(self, event: events.LogsObserved, _now: float) -> list[Action]:
        self._logs = event
        return []

    def _on_storage(self, event: events.StorageCounted, _now: float) -> list[Action]:
        self._storage = event
        return []

    def _on_batch(self, event: events.BatchStored, _now: float) -> list[Action]:
        self._groups.stored(event.partitions)
        return []

    def _on_started(self, event: events.QueryStarted, now: float) -> list[Action]:
        self._left_out.add(event.unanswered, now)
        self._left_out.take_in(event.partitions)
        self.queries = {**self.queries, event.partitions: Phase.READING}
        return [self._commit(), *self._enter(WorkerState.RUNNING)]

    def _on_start_failed(self, event: events.StartFailed, now: float) -> list[Action]:
        failures, seconds = self._groups.failed(event.group, event.why, now, is_own_fault=event.outside is None)
        return [events.ReportRetry(event.why, failures, seconds, event.outside)]

    def _on_query_failed(self, event: events.QueryFailed, _now: float) -> list[Action]:
        self._failed[event.group] = event
        return []

    def _on_draining(self, event: events.Draining, _now: float) -> list[Action]:
        self._set_phase({each for each in event.groups if self.queries.get(each) is Phase.READING}, Phase.DRAINING)
        return []

    def _on_drained(self, event: events.Drained, _now: float) -> list[Action]:
        if event.group not in self.queries:
            return []
        if self.is_seeking:
            self._set_phase({event.group}, Phase.DRAINED)
            return []
        return [self._commit(), *self._stop_one(event.group)]  # its last batch may have ended since the last commit

    def _on_driver_ended(self, event: events.DriverEnded, _now: float) -> list[Action]:
        report = events.ReportEvent("engine_lost", event.why)
        if not self.queries:
            return [report]
        return [report, *self._stop_all(), *self._enter(WorkerState.ASSIGNED)]

    def _on_seek_requested(self, _event: events.SeekRequested, _now: float) -> list[Action]:
        self.is_seeking = True
        return [] if self._polled.is_rebalancing else self._drain(set(self.queries))

    def _on_seek_begun(self, _event: events.SeekBegun, _now: float) -> list[Action]:
        return [self._commit(), *self._stop_all()]

    def _on_seek_ended(self, _event: events.SeekEnded, _now: float) -> list[Action]:
        self.is_seeking = False
        return []

    def _on_tick(self, _event: events.Tick, now: float) -> list[Action]:
        if self._is_held:
            return []
        self._left_out.keep(self._polled.assigned, now)
        unreadable = self._left_out.still(self._logs.answered, now)
        self._plan = self._groups.plan(self._wanted - unreadable, now)
        actions = self._end_outdated()
        failed, self._failed = self._failed, {}
        for group, failure in failed.items():
            if self.queries.get(group) is Phase.READING:
                actions += self._retry_query(group, failure, now)
        return actions

    def _end_outdated(self) -> list[Action]:
        """Ends queries that read other partitions than they should, that drain already, that read a topic that was
        recreated or has a partition without a leader, or that have to wait for room."""
        if not self.queries:
            return []
        actions: list[Action] = []
        is_every = self._logs.is_recreated or self._logs.is_leaderless
        if not is_every:
            actions = self._throttle()
            is_every = self._throttled_by is not None
        draining = {group for group, phase in self.queries.items() if phase is not Phase.READING}
        outdated = set(self.queries) if is_every else (self.queries.keys() - set(self._plan)) | draining
        if self._logs.is_hopeless:
            for group in outdated:
                actions += self._stop_one(group)
            return actions
        return actions + self._drain(outdated)

    def _retry_query(self, group: Group, failure: events.QueryFailed, now: float) -> list[Action]:
        actions = self._stop_one(group)
        if not self.queries:
            actions += self._enter(WorkerState.ASSIGNED)
        failures, seconds = self._groups.failed(group, failure.why, now, is_own_fault=failure.outside is None)
        return [
            *actions,
            events.ReportRetry(failure.why, failures, seconds, failure.outside),
            events.ReportQueryFailed(failure.why, is_first=failures == 1),
        ]

    def _on_start_due(self, _event: events.StartDue, now: float) -> list[Action]:
        if self._is_held:
            return []
        if not self.queries and self._polled.assigned and not self._wanted:
            return self._enter(WorkerState.PAUSED)
        due = [group for group in self._plan if group.isdisjoint(self.reading) and self._groups.is_due(group, now)]
        if not due:
            return (
                self._enter(WorkerState.RUNNING) if self.state is WorkerState.REBALANCING and self.is_complete else []
            )
        actions = self._throttle()
        if self._throttled_by is not None:
            return actions
        if not self.queries:
            actions += self._enter(WorkerState.ASSIGNED)
        return [*actions, events.StartQuery(due[0])]  # one: it may take long, and the group must be polled

    def _on_stop(self, _event: events.StopRequested, _now: float) -> list[Action]:
        return self._enter(WorkerState.STOPPING)

    @property
    def _is_held(self) -> bool:
        return self.is_seeking or self.state is WorkerState.STOPPING

    @property
    def _wanted(self) -> Group:
        return self._polled.assigned - self._paused

    def _throttle(self) -> list[Action]:
        """Throttles while the storage is full, with hysteresis: it has to have more room before batches begin again."""
        before = self._throttled_by
        why = self._throttled_by = self._storage.nearly_full if before else self._storage.full
        actions: list[Action] = []
        if why is not None:
            actions += self._enter(WorkerState.THROTTLED)
            if before is None:
                actions.append(events.ReportEvent("throttled", f"takes no new batch: {why}"))
        return [*actions, events.Throttle(why)] if why != before else actions

    def _enter(self, state: WorkerState) -> list[Action]:
        """Enters a state and publishes it. A worker that stops keeps that state."""
        if state is self.state or self.state is WorkerState.STOPPING:
            return []
        self.state = state
        return [events.Enter(state)]

    def _commit(self) -> events.Commit:
        return events.Commit(self.reading & self._polled.assigned)

    def _drain(self, groups: set[Group]) -> list[Action]:
        self._set_phase({group for group in groups if self.queries[group] is Phase.READING}, Phase.DRAINING)
        return [events.Drain(group) for group in sorted(groups, key=sorted)]

    def _set_phase(self, groups: set[Group], phase: Phase) -> None:
        self.queries = {**self.queries, **dict.fromkeys(groups, phase)}

    def _stop_one(self, group: Group) -> list[Action]:
        self.queries = {each: phase for each, phase in self.queries.items() if each != group}
        return [events.StopQuery(group)]

    def _stop_reading(self, polled: events.Polled, *, is_waited_for: bool = False) -> list[Action]:
        """Ends all queries: what is assigned, and which there should be, is not known before the next poll and tick."""
        self._polled, self._plan = polled, []
        return self._stop_all(is_waited_for=is_waited_for)

    def _stop_all(self, *, is_waited_for: bool = False) -> list[Action]:
        self.queries = {}
        return [events.StopQuery(is_waited_for=is_waited_for)]
