"""The state machine of a worker, which takes events and returns actions.

Each event is a method. Most return actions, which the caller performs in order. Times are the caller's monotonic
seconds. `tick` decides which queries must end. `start_due` decides which query starts next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka import TopicPartition

from kctl_agent.replies.workers import Outside, UnreadPartition
from kctl_agent.worker.lifecycle.query_groups import Group, LeftOut, QueryGroups

NONE: Group = frozenset()


class WorkerState(StrEnum):
    """The states of `Lifecycle`. A worker process has two more states, `starting` and `failed`."""

    JOINING = "joining"
    ASSIGNED = "assigned"  # the worker has partitions but no query yet
    RUNNING = "running"
    THROTTLED = "throttled"  # the storage has no room: there is no query, or one that is ending
    PAUSED = "paused"  # an operation has paused all its partitions
    REBALANCING = "rebalancing"
    STOPPING = "stopping"


class Phase(StrEnum):
    READING = "reading"
    DRAINING = "draining"  # no further batch begins; one may still run
    DRAINED = "drained"  # no batch runs or will


class Action:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LogsObserved:
    answered: Group = NONE
    is_recreated: bool = False
    is_leaderless: bool = False
    """A partition has been without a leader for longer than an election takes."""
    is_hopeless: bool = False
    """The leader has been gone for so long that a running batch waits in vain."""


@dataclass(frozen=True, slots=True)
class Enter(Action):
    state: WorkerState


@dataclass(frozen=True, slots=True)
class Commit(Action):
    partitions: Group


@dataclass(frozen=True, slots=True)
class StartQuery(Action):
    """Starts a query. The caller then calls `query_started`, `start_failed`, `driver_ended` or `lost`."""

    group: Group
    is_careful: bool = False


@dataclass(frozen=True, slots=True)
class Drain(Action):
    """Prevents new batches of `group`. `Lifecycle` repeats this until no batch runs and the caller calls `drained`."""

    group: Group


@dataclass(frozen=True, slots=True)
class StopQuery(Action):
    """Ends the query of `group`, or all queries if `group` is None."""

    group: Group | None = None
    is_waited_for: bool = False
    """A running batch has `workers.revoke_timeout_seconds` to end; otherwise it is abandoned."""


@dataclass(frozen=True, slots=True)
class Throttle(Action):
    """Publishes why no new batch begins. `why` is None if batches begin again."""

    why: str | None


@dataclass(frozen=True, slots=True)
class ReportEvent(Action):
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportRetry(Action):
    why: str
    failures: int
    seconds: float
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class ReportQueryFailed(Action):
    why: str
    is_first: bool


class Lifecycle:
    """A worker's state. Used by the main thread, or by the rebalance thread while the main thread waits."""

    def __init__(self) -> None:
        self.state = WorkerState.JOINING
        self.queries: Mapping[Group, Phase] = {}
        """Queries by their partitions; replaced, never changed in place."""
        self.is_seeking = False
        self._assigned = NONE
        self._is_rebalancing = False
        self._paused = NONE
        self._logs = LogsObserved()
        self._full: str | None = None
        self._nearly_full: str | None = None
        self._failed: dict[Group, tuple[str, Outside | None]] = {}
        self._throttled_by: str | None = None
        self._plan: list[Group] = []
        self._groups = QueryGroups()
        self._unreadable: Mapping[TopicPartition, UnreadPartition] = {}
        self._left_out = LeftOut()

    @property
    def reading(self) -> Group:
        return NONE.union(*self.queries)

    @property
    def is_complete(self) -> bool:
        return bool(self.queries) and self.reading == NONE.union(*self._plan)

    @property
    def is_drained(self) -> bool:
        """Whether all batches have ended, and none will start before the assignment changes."""
        return not self._is_rebalancing and all(phase is Phase.DRAINED for phase in self.queries.values())

    def left_out(self, seconds: float, now: float) -> dict[TopicPartition, str]:
        return self._left_out.lasting(seconds, now)

    def isolated(self) -> dict[TopicPartition, UnreadPartition]:
        return {tp: each for tp, each in self._unreadable.items() if tp in self._groups.suspects}

    def polled(self, assigned: Group, *, is_rebalancing: bool = False) -> list[Action]:
        self._assigned, self._is_rebalancing = NONE if is_rebalancing else assigned, is_rebalancing
        return self._enter(WorkerState.REBALANCING) if is_rebalancing else [self._commit()]

    def paused(self, partitions: Group) -> None:
        self._paused = partitions

    def revoked(self, partitions: Group) -> list[Action]:
        """Stops reading. Another member gets these partitions as soon as the caller has performed the actions."""
        if not partitions:
            return []
        self._is_rebalancing = True
        return [*self._enter(WorkerState.REBALANCING), *self._stop_reading(is_waited_for=True)]

    def lost(self) -> list[Action]:
        """Stops reading without a commit, because the session expired and the group continues without this member."""
        report = ReportEvent("lost", "the group continued without this worker; the worker joins again")
        return [report, *self._stop_reading()]

    def fenced(self, why: str) -> list[Action]:
        """Stops reading for good. Another member has taken this member's place, so this member must not join again."""
        self._is_rebalancing = False
        return [ReportEvent("fenced", why), *self._stop_reading()]

    def logs_observed(self, logs: LogsObserved) -> None:
        self._logs = logs

    def storage_counted(self, full: str | None, nearly_full: str | None) -> None:
        """Records the reasons to begin (`full`) and to continue throttling (`nearly_full`). Each may be None."""
        self._full, self._nearly_full = full, nearly_full

    def batch_stored(self, partitions: Group) -> None:
        self._groups.stored(partitions)

    def read_carefully(self, cleared: Group, unreadable: Mapping[TopicPartition, UnreadPartition]) -> None:
        """Records the careful query's results. The `cleared` partitions are no longer suspicious."""
        self._groups.clear(cleared)
        self._unreadable = unreadable

    def query_started(self, partitions: Group, unanswered: Mapping[TopicPartition, str], now: float) -> list[Action]:
        self._left_out.add(unanswered, now)
        self._left_out.take_in(partitions)
        self.queries = {**self.queries, partitions: Phase.READING}
        return [self._commit(), *self._enter(WorkerState.RUNNING)]

    def start_failed(self, group: Group, why: str, outside: Outside | None, now: float) -> list[Action]:
        failures, seconds = self._groups.failed(group, now, is_own_fault=outside is None, was_read=False)
        return [ReportRetry(why, failures, seconds, outside)]

    def query_failed(self, group: Group, why: str, outside: Outside | None) -> None:
        self._failed[group] = (why, outside)

    def draining(self, groups: Iterable[Group]) -> None:
        self._set_phase({each for each in groups if self.queries.get(each) is Phase.READING}, Phase.DRAINING)

    def drained(self, group: Group) -> list[Action]:
        if group not in self.queries:
            return []
        if self.is_seeking:
            self._set_phase({group}, Phase.DRAINED)
            return []
        return [self._commit(), *self._stop_one(group)]  # its last batch may have ended since the last commit

    def driver_ended(self, why: str) -> list[Action]:
        report = ReportEvent("engine_lost", why)
        if not self.queries:
            return [report]
        return [report, *self._stop_all(), *self._enter(WorkerState.ASSIGNED)]

    def seek_requested(self) -> list[Action]:
        """Drains all queries. Until `seek_ended`, `tick` and `start_due` return no actions."""
        self.is_seeking = True
        return [] if self._is_rebalancing else self._drain(set(self.queries))

    def seek_begun(self) -> list[Action]:
        return [self._commit(), *self._stop_all()]

    def seek_ended(self) -> None:
        self.is_seeking = False

    def tick(self, now: float) -> list[Action]:
        if self._is_held:
            return []
        self._left_out.keep(self._assigned, now)
        unreadable = self._left_out.still(self._logs.answered, now)
        self._plan = self._groups.plan(self._wanted - unreadable)
        found = self._end_outdated()
        failed, self._failed = self._failed, {}
        for group, (why, outside) in failed.items():
            if self.queries.get(group) is Phase.READING:
                found += self._retry_query(group, why, outside, now)
        return found

    def start_due(self, now: float) -> list[Action]:
        if self._is_held:
            return []
        if not self.queries and self._assigned and not self._wanted:
            return self._enter(WorkerState.PAUSED)
        due = [group for group in self._plan if group.isdisjoint(self.reading) and self._groups.is_due(group, now)]
        if not due:
            return (
                self._enter(WorkerState.RUNNING) if self.state is WorkerState.REBALANCING and self.is_complete else []
            )
        before = self._throttle()
        if self._throttled_by is not None:
            return before
        if not self.queries:
            before += self._enter(WorkerState.ASSIGNED)
        start = StartQuery(due[0], is_careful=self._groups.is_careful(due[0]))
        return [*before, start]  # one: it may take long, and the group must be polled

    def stop_requested(self) -> list[Action]:
        """Begins to stop. Afterwards the worker leaves its group, which revokes its partitions."""
        return self._enter(WorkerState.STOPPING)

    def _end_outdated(self) -> list[Action]:
        if not self.queries:
            return []
        throttled: list[Action] = []
        is_every = self._logs.is_recreated or self._logs.is_leaderless
        if not is_every:
            throttled = self._throttle()
            is_every = self._throttled_by is not None
        draining = {group for group, phase in self.queries.items() if phase is not Phase.READING}
        outdated = set(self.queries) if is_every else (self.queries.keys() - set(self._plan)) | draining
        if self._logs.is_hopeless:
            return [*throttled, *(action for group in outdated for action in self._stop_one(group))]
        return throttled + self._drain(outdated)

    def _retry_query(self, group: Group, why: str, outside: Outside | None, now: float) -> list[Action]:
        stopped = self._stop_one(group)
        if not self.queries:
            stopped += self._enter(WorkerState.ASSIGNED)
        failures, seconds = self._groups.failed(group, now, is_own_fault=outside is None)
        report = ReportRetry(why, failures, seconds, outside)
        return [*stopped, report, ReportQueryFailed(why, is_first=failures == 1)]

    @property
    def _is_held(self) -> bool:
        return self.is_seeking or self.state is WorkerState.STOPPING

    @property
    def _wanted(self) -> Group:
        return self._assigned - self._paused

    def _throttle(self) -> list[Action]:
        before = self._throttled_by
        why = self._throttled_by = self._nearly_full if before else self._full
        found: list[Action] = []
        if why is not None:
            found += self._enter(WorkerState.THROTTLED)
            if before is None:
                found.append(ReportEvent("throttled", f"takes no new batch: {why}"))
        return [*found, Throttle(why)] if why != before else found

    def _enter(self, state: WorkerState) -> list[Action]:
        if state is self.state or self.state is WorkerState.STOPPING:
            return []
        self.state = state
        return [Enter(state)]

    def _commit(self) -> Commit:
        return Commit(self.reading & self._assigned)

    def _drain(self, groups: set[Group]) -> list[Action]:
        self._set_phase({group for group in groups if self.queries[group] is Phase.READING}, Phase.DRAINING)
        return [Drain(group) for group in sorted(groups, key=sorted)]

    def _set_phase(self, groups: set[Group], phase: Phase) -> None:
        self.queries = {**self.queries, **dict.fromkeys(groups, phase)}

    def _stop_one(self, group: Group) -> list[Action]:
        self.queries = {each: phase for each, phase in self.queries.items() if each != group}
        return [StopQuery(group)]

    def _stop_reading(self, *, is_waited_for: bool = False) -> list[Action]:
        self._assigned, self._plan = NONE, []
        return self._stop_all(is_waited_for=is_waited_for)

    def _stop_all(self, *, is_waited_for: bool = False) -> list[Action]:
        self.queries = {}
        return [StopQuery(is_waited_for=is_waited_for)]
