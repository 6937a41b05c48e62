"""Operations on a running process. The agent's thread accepts them, and the main thread executes them.

The agent's thread never uses a consumer, a Spark session or a storage. Callers ask for the outcome later, by id.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.messages import is_plain_number
from kctl_agent.rpc.wire import JsonObject

_KEPT_OUTCOMES: Final = 100

OperationState: TypeAlias = Literal["waiting", "running", "done", "failed", "unknown"]
"""`waiting` has changed nothing yet; after `failed` nothing more changes, after `unknown` something may."""


def scope_of(value: object) -> Scope:
    if isinstance(value, dict):
        topic, partition, by, since = (value.get(key) for key in ("topic", "partition", "by", "since"))
        if (
            (topic is None or isinstance(topic, str))
            and (partition is None or (type(partition) is int and topic is not None))
            and isinstance(by, str)
            and isinstance(since, int | float)
            and is_plain_number(since)
            and is_plain_number(partition)
        ):
            return Scope(topic, partition, by, float(since))
    raise BadParams('a scope is {"topic": text or null, "partition": number or null, "by": text, "since": seconds}')


def is_paused(scopes: Iterable[Scope], topic: str, partition: int) -> bool:
    return any(scope.covers(topic, partition) for scope in scopes)


@dataclass(frozen=True, slots=True)
class AcceptedOperation:
    id: str
    rpc: str
    params: JsonObject
    until: float = math.inf
    """Not begun after this `time.monotonic()`, one clock for all processes of a host."""


@dataclass(frozen=True, slots=True)
class Outcome:
    state: OperationState = "waiting"
    text: str = ""
    result: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {"state": self.state, "text": self.text, "result": self.result}


def outcome_of(operation: AcceptedOperation, steps: Mapping[str, Callable[[AcceptedOperation], Outcome]]) -> Outcome:
    step = steps.get(operation.rpc)
    return Outcome("failed", f"this process has no operation {operation.rpc}") if step is None else step(operation)


_CANCELLED: Final = Outcome("failed", "was cancelled")
_PENDING: Final = ("waiting", "running")


class Inbox:
    """Passes operations from the agent's thread to the thread that executes them. Thread-safe."""

    def __init__(self, paused: Sequence[Scope] = ()) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[AcceptedOperation] = deque()
        self._outcomes: dict[str, Outcome] = {}
        self.paused = tuple(paused)
        self.taken_at: float | None = None
        """By `time.monotonic()`; None before the owning thread's first turn."""

    def pause(self, scopes: Sequence[Scope]) -> None:
        self.paused = tuple(scopes)

    def accept(self, operation: AcceptedOperation, first: Callable[[], None] = lambda: None) -> None:
        """Runs `first`, and accepts the operation unless `first` raises. Does neither after the operation's
        `until`, or if its id was accepted or cancelled before."""
        with self._lock:
            if operation.id in self._outcomes:
                return
            if time.monotonic() < operation.until:
                first()
                self._waiting.append(operation)
            self._keep(operation.id, Outcome("waiting", "has not begun yet"))
            self._dropped(operation)

    def take(self) -> list[AcceptedOperation]:
        self.taken_at = time.monotonic()
        if not self._waiting:
            return []
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def dropped(self, operation: AcceptedOperation) -> Outcome | None:
        with self._lock:
            return self._dropped(operation)

    def begin(self, operation: AcceptedOperation) -> Outcome | None:
        """Marks an operation as running. If it was cancelled or has timed out, returns its outcome instead."""
        with self._lock:
            dropped = self._dropped(operation)
            if dropped is None:
                self._outcomes[operation.id] = Outcome("running", "is being carried out")
            return dropped

    def cancel(self, id_: str) -> Outcome:
        """Cancels an operation unless it has begun, and returns the operation's outcome. If it has not arrived, returns
        `unknown`, and `accept` will ignore it."""
        with self._lock:
            outcome = self._outcomes.get(id_)
            if outcome is None or outcome.state == "waiting":
                self._keep(id_, _CANCELLED)
            return Outcome("unknown", "was never accepted") if outcome is None else self._outcomes[id_]

    def report(self, id_: str, outcome: Outcome) -> None:
        with self._lock:
            if self._outcomes.get(id_, _CANCELLED).state in _PENDING:
                self._outcomes[id_] = outcome

    def outcome(self, id_: str) -> Outcome | None:
        """Returns the outcome of an operation, or None for an unknown or forgotten id."""
        with self._lock:
            return self._outcomes.get(id_)

    def _dropped(self, operation: AcceptedOperation) -> Outcome | None:
        outcome = self._outcomes.get(operation.id, _CANCELLED)
        if outcome.state == "waiting" and time.monotonic() >= operation.until:
            outcome = self._outcomes[operation.id] = Outcome("failed", "was not begun in time")
        return None if outcome.state in _PENDING else outcome

    def _keep(self, id_: str, outcome: Outcome) -> None:
        self._outcomes[id_] = outcome
        ended = [each for each, of in self._outcomes.items() if of.state not in _PENDING]
        for each in ended[: max(len(self._outcomes) - _KEPT_OUTCOMES, 0)]:
            del self._outcomes[each]
