"""The state machine of a supervised process, start, restart, stop, given up: pure, over a `SupervisionStatus`.

No clock, no process, no randomness in here: `step` is given the time and the jitter. What has to be done follows from
the state that is entered (`starting`: spawn, `stopping`: terminate, `backoff`: wait until `next_try_at`);
`process_supervisor` does it. Whether a living process is unhealthy is decided in `health`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

EXIT_CONFIG = 78
"""The exit code for a configuration that cannot be used (EX_CONFIG of sysexits.h): trying again cannot help."""


class SupervisionState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FATAL = "fatal"


class Cause(StrEnum):
    """Why a process was started again; the `reason` label of `kctl_worker_restarts_total`."""

    EXIT = "exit"
    SIGNAL = "signal"
    MEMORY = "memory"
    UNRESPONSIVE = "unresponsive"
    STALLED = "stalled"
    REQUESTED = "requested"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The back-off between `backoff_min_seconds` and `backoff_max_seconds`. Nothing but its configuration ends it for
    good: what it lacks may come back.

    A process that has been running for `stable_seconds` has proven itself: its next death is the first failure again.
    """

    backoff_min_seconds: float
    backoff_max_seconds: float
    stable_seconds: float


@dataclass(frozen=True, slots=True)
class SupervisionStatus:
    """A supervised process as it is desired and observed. Times are seconds of the caller's monotonic clock."""

    since: float
    desired: SupervisionState = SupervisionState.STOPPED
    """Only `running` or `stopped`."""
    state: SupervisionState = SupervisionState.STOPPED
    failures: int = 0
    """Failures in a row."""
    cause: Cause | None = None
    """Why the next start will be a restart; None when it will be a first start."""
    restarts: Mapping[Cause, int] = field(default_factory=lambda: MappingProxyType({}))
    next_try_at: float | None = None

    @property
    def restarts_total(self) -> int:
        return sum(self.restarts.values())


@dataclass(frozen=True, slots=True)
class Start:
    """The operator, or the master at its start, wants the process to run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The operator, or the master at its end, wants the process gone. `timeout_seconds` is how long it may take to
    leave before it is killed; None: as it is configured."""

    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """The living process must make way for a new one: asked to leave, or killed `at_once`."""

    cause: Cause
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The agent of the process has answered."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The process and everything it had started are gone. A negative code is the signal that ended it."""

    code: int


@dataclass(frozen=True, slots=True)
class Due:
    """The clock may have reached `next_try_at`."""


Event: TypeAlias = Start | Stop | Replace | Ready | Exited | Due


def backoff_seconds(policy: RestartPolicy, failures: int, jitter: float) -> float:
    """Returns the pause after that many failures in a row (>= 1): it doubles; `jitter` in [0, 1] draws its upper half.

    Jitter keeps workers that died of one cause from coming back in one moment; the lower half keeps it a pause.
    """
    doublings = min(failures, 32)  # beyond any setting; 2.0**1024 would overflow
    high = min(policy.backoff_max_seconds, policy.backoff_min_seconds * 2.0**doublings)
    low = max(policy.backoff_min_seconds, high / 2)
    return min(low + jitter * max(high - low, 0.0), policy.backoff_max_seconds)


def step(
    policy: RestartPolicy, status: SupervisionStatus, event: Event, now: float, jitter: float
) -> SupervisionStatus:
    """The status after `event`; the same object if it means nothing in this state (a late answer, a second stop)."""
    rule = _RULES.get((status.state, type(event)))
    return status if rule is None else rule(_Step(policy, status, event, now, jitter))


class _Step(NamedTuple):
    """What a rule decides by."""

    policy: RestartPolicy
    status: SupervisionStatus
    event: Event
    now: float
    jitter: float

    def enter(self, state: SupervisionState, **changes: Any) -> SupervisionStatus:
        return replace(self.status, state=state, since=self.now, next_try_at=None, **changes)

    def having(self, **changes: Any) -> _Step:
        return self._replace(status=replace(self.status, **changes))

    @property
    def is_stable(self) -> bool:
        status = self.status
        return status.state is SupervisionState.RUNNING and self.now - status.since >= self.policy.stable_seconds


def _launch(at: _Step) -> SupervisionStatus:
    restarts, cause = at.status.restarts, at.status.cause
    if cause is not None:
        restarts = MappingProxyType({**restarts, cause: restarts.get(cause, 0) + 1})
    return at.enter(SupervisionState.STARTING, desired=SupervisionState.RUNNING, cause=None, restarts=restarts)


def _launch_afresh(at: _Step) -> SupervisionStatus:
    return _launch(at.having(failures=0, cause=None))


def _retry_when_due(at: _Step) -> SupervisionStatus:
    due = at.status.next_try_at
    return at.status if due is not None and at.now < due else _launch(at)


def _is_up(at: _Step) -> SupervisionStatus:
    return at.enter(SupervisionState.RUNNING)


def _ask_to_leave(at: _Step) -> SupervisionStatus:
    if isinstance(at.event, Replace):
        failures = 0 if at.is_stable else at.status.failures
        cause = at.event.cause
        return at.enter(SupervisionState.STOPPING, desired=SupervisionState.RUNNING, cause=cause, failures=failures)
    return at.enter(SupervisionState.STOPPING, desired=SupervisionState.STOPPED, cause=None)


def _no_longer_wanted(at: _Step) -> SupervisionStatus:
    return replace(at.status, desired=SupervisionState.STOPPED, cause=None)


def _wanted_again(at: _Step) -> SupervisionStatus:
    return replace(at.status, desired=SupervisionState.RUNNING, cause=at.status.cause or Cause.REQUESTED)


def _stopped(at: _Step) -> SupervisionStatus:
    return at.enter(SupervisionState.STOPPED, desired=SupervisionState.STOPPED, failures=0, cause=None)


def _left(at: _Step) -> SupervisionStatus:
    if at.status.desired is SupervisionState.STOPPED:
        return _stopped(at)
    return _launch(at) if at.status.cause is Cause.REQUESTED else _failed(at)


def _died(at: _Step) -> SupervisionStatus:
    return _failed(at.having(failures=0) if at.is_stable else at)


def _failed(at: _Step) -> SupervisionStatus:
    code = at.event.code if isinstance(at.event, Exited) else 1
    cause = at.status.cause or (Cause.SIGNAL if code < 0 else Cause.EXIT)
    at = at.having(failures=at.status.failures + 1, cause=cause)
    if code == EXIT_CONFIG:
        return at.enter(SupervisionState.FATAL)
    pause = backoff_seconds(at.policy, at.status.failures, at.jitter)
    return replace(at.enter(SupervisionState.BACKOFF), next_try_at=at.now + pause)


_RULES: dict[tuple[SupervisionState, type[Event]], Callable[[_Step], SupervisionStatus]] = {
    (SupervisionState.STOPPED, Start): _launch_afresh,
    (SupervisionState.FATAL, Start): _launch_afresh,
    (SupervisionState.FATAL, Stop): _stopped,
    (SupervisionState.BACKOFF, Start): _launch,
    (SupervisionState.BACKOFF, Stop): _stopped,
    (SupervisionState.BACKOFF, Due): _retry_when_due,
    (SupervisionState.STARTING, Ready): _is_up,
    (SupervisionState.STARTING, Exited): _died,
    (SupervisionState.STARTING, Stop): _ask_to_leave,
    (SupervisionState.STARTING, Replace): _ask_to_leave,
    (SupervisionState.RUNNING, Exited): _died,
    (SupervisionState.RUNNING, Stop): _ask_to_leave,
    (SupervisionState.RUNNING, Replace): _ask_to_leave,
    (SupervisionState.STOPPING, Start): _wanted_again,
    (SupervisionState.STOPPING, Stop): _no_longer_wanted,
    (SupervisionState.STOPPING, Exited): _left,
}
