"""The state machine of a supervised process. Pure: time and jitter are passed to `step`.

The caller acts on each new state. In `starting`, it spawns the process. In `stopping`, it ends the process. In
`unkillable`, it waits for the process to end. In `backoff`, it waits until `next_try_at`.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

EXIT_CONFIG = 78
"""The exit code for an unusable configuration (EX_CONFIG of sysexits.h): a retry cannot help."""


class SupervisionState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FATAL = "fatal"
    UNKILLABLE = "unkillable"


class Cause(StrEnum):
    """The reason for a restart, as in the label `reason` of `kctl_worker_restarts_total`."""

    EXIT = "exit"
    SIGNAL = "signal"
    MEMORY = "memory"
    UNRESPONSIVE = "unresponsive"
    STALLED = "stalled"
    REQUESTED = "requested"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The waits between restarts of a process. Only an unusable configuration ends restarts, because any other failure
    may be temporary. After `stable_seconds` of running, the next failure counts as the first."""

    backoff_min_seconds: float
    backoff_max_seconds: float
    stable_seconds: float


@dataclass(frozen=True, slots=True)
class SupervisionStatus:
    """The desired and the actual state of a process. Times are in monotonic seconds."""

    since: float
    desired: SupervisionState = SupervisionState.STOPPED
    state: SupervisionState = SupervisionState.STOPPED
    failures: int = 0
    cause: Cause | None = None  # why the next start is a restart; None for a first start
    is_requested: bool = False
    """Whether its last start, restart or stop was requested, without a failure since."""
    restarts: Mapping[Cause, int] = field(default_factory=lambda: MappingProxyType({}))
    next_try_at: float | None = None


class Start: ...


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end the process, and to kill it after `timeout_seconds` (None: as configured)."""

    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """A request to replace a living process. With `at_once`, kctl kills it without asking it to stop."""

    cause: Cause
    at_once: bool = False


class Ready: ...


@dataclass(frozen=True, slots=True)
class Exited:
    """The process and all processes that it had started are gone. A negative code is a signal."""

    code: int


class Survived:
    """A process survives SIGKILL, so its successor cannot start yet."""


class Due: ...


Event: TypeAlias = Start | Stop | Replace | Ready | Exited | Survived | Due


def backoff_seconds(policy: RestartPolicy, failures: int, jitter: float) -> float:
    """Returns the wait before the next start after one or more `failures`. `jitter`, from 0 (half the wait) to 1 (the
    full wait), prevents workers that died together from restarting together."""
    doublings = min(failures, 32)  # beyond any setting; 2.0**1024 would overflow
    high = min(policy.backoff_max_seconds, policy.backoff_min_seconds * 2.0**doublings)
    low = max(policy.backoff_min_seconds, high / 2)
    return min(low + jitter * max(high - low, 0.0), policy.backoff_max_seconds)


def step(
    policy: RestartPolicy, status: SupervisionStatus, event: Event, now: float, jitter: float
) -> SupervisionStatus:
    """Returns the status after an event, or `status` itself if the event has no effect."""
    at = _Step(policy, status, now, jitter)
    match status.state, event:
        case SupervisionState.STOPPED | SupervisionState.FATAL, Start():
            return at.launched(failures=0, cause=None, is_requested=True)
        case SupervisionState.FATAL | SupervisionState.BACKOFF, Stop():
            return at.stopped()
        case SupervisionState.BACKOFF, Start():
            return at.launched(is_requested=True)
        case SupervisionState.BACKOFF, Due():
            return status if status.next_try_at is not None and now < status.next_try_at else at.launched()
        case SupervisionState.STARTING, Ready():
            return at.entered(SupervisionState.RUNNING)
        case SupervisionState.STARTING | SupervisionState.RUNNING, Exited(code):
            return at.failed(code, 0 if at.is_stable else status.failures)
        case SupervisionState.STARTING | SupervisionState.RUNNING, Stop():
            return at.entered(SupervisionState.STOPPING, desired=SupervisionState.STOPPED, cause=None)
        case SupervisionState.STARTING | SupervisionState.RUNNING, Replace(cause):
            failures = 0 if at.is_stable else status.failures
            changes = {"cause": cause, "failures": failures, "is_requested": cause is Cause.REQUESTED}
            return at.entered(SupervisionState.STOPPING, desired=SupervisionState.RUNNING, **changes)
        case SupervisionState.STARTING | SupervisionState.RUNNING | SupervisionState.STOPPING, Survived():
            failures = 0 if at.is_stable else status.failures
            return at.entered(SupervisionState.UNKILLABLE, failures=failures, is_requested=False)
        case SupervisionState.STOPPING | SupervisionState.UNKILLABLE, Start():
            cause, is_requested = status.cause or Cause.REQUESTED, status.state is SupervisionState.STOPPING
            return replace(status, desired=SupervisionState.RUNNING, cause=cause, is_requested=is_requested)
        case SupervisionState.STOPPING | SupervisionState.UNKILLABLE, Stop():
            return replace(status, desired=SupervisionState.STOPPED, cause=None)
        case SupervisionState.STOPPING | SupervisionState.UNKILLABLE, Exited() if (
            status.desired is SupervisionState.STOPPED
        ):
            return at.stopped()
        case SupervisionState.STOPPING | SupervisionState.UNKILLABLE, Exited(code):
            return at.launched() if status.cause is Cause.REQUESTED else at.failed(code, status.failures)
    return status


class _Step(NamedTuple):
    policy: RestartPolicy
    status: SupervisionStatus
    now: float
    jitter: float

    def entered(self, state: SupervisionState, **changes: Any) -> SupervisionStatus:
        return replace(self.status, **{"state": state, "since": self.now, "next_try_at": None, **changes})

    @property
    def is_stable(self) -> bool:
        status = self.status
        return status.state is SupervisionState.RUNNING and self.now - status.since >= self.policy.stable_seconds

    def launched(self, **changes: Any) -> SupervisionStatus:
        status = replace(self.status, **changes)
        restarts, cause = status.restarts, status.cause
        if cause is not None:
            restarts = MappingProxyType({**restarts, cause: restarts.get(cause, 0) + 1})
        changes |= {"desired": SupervisionState.RUNNING, "cause": None, "restarts": restarts}
        return self.entered(SupervisionState.STARTING, **changes)

    def stopped(self) -> SupervisionStatus:
        return self.entered(SupervisionState.STOPPED, desired=SupervisionState.STOPPED, failures=0, cause=None)

    def failed(self, code: int, failures: int) -> SupervisionStatus:
        cause = self.status.cause or (Cause.SIGNAL if code < 0 else Cause.EXIT)
        known: dict[str, Any] = {"failures": failures + 1, "cause": cause, "is_requested": False}
        if code == EXIT_CONFIG:
            return self.entered(SupervisionState.FATAL, **known)
        due = self.now + backoff_seconds(self.policy, failures + 1, self.jitter)
        return self.entered(SupervisionState.BACKOFF, next_try_at=due, **known)


_QUIET = re.compile(r"^\S+Z (DEBUG|INFO|WARNING) ")
"""A line of our processes (`kctl_agent.process.bootstrap`) that is not an error."""
_HEAD = re.compile(r"^\d{4}-\S+Z [A-Z]+ \S+ ")
_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL|Fatal)\b|\w*(Error|Exception)\b")


def cause(code: int) -> str:
    """Describes an exit code: `signal 9, SIGKILL`, or `exit code 1`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def why(code: int, last_line: str | None) -> str:
    """Returns why a process has ended: the last line of its log, or the exit code if that line is not an error. If a
    signal ended the process, returns the signal, and adds the line if it looks like an error."""
    if last_line is None:
        return f"{cause(code)}; its log is empty"
    if _QUIET.match(last_line) or (code < 0 and not _ERROR.search(last_line)):
        return cause(code)
    sentence = _HEAD.sub("", last_line)
    return f"{cause(code)}; {sentence}" if code < 0 else sentence
