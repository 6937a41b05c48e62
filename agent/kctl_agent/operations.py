"""Operations on a running worker or sinker: taken on the agent's thread, carried out by the thread that owns the work.

The agent answers an operation at once with "accepted"; its outcome is asked for by its id (command `operation`). So the
socket thread never touches a consumer, a Spark session or a storage, and an operation that takes long delays nobody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.messages import is_plain_number
from kctl_agent.wire import JsonObject

__all__ = ["Inbox", "Operation", "OperationState", "Outcome", "Scope", "is_paused"]

_KEPT_OUTCOMES: Final = 100

OperationState: TypeAlias = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is not to be read, since when and on whose request: a topic, one partition of it, or (topic None) all."""

    topic: str | None
    partition: int | None
    by: str
    since: float
    """Unix seconds."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Raises BadParams: it is something else."""
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
                return cls(topic, partition, by, float(since))
        raise BadParams('a scope is {"topic": text or null, "partition": number or null, "by": text, "since": seconds}')

    def to_json(self) -> JsonObject:
        return {"topic": self.topic, "partition": self.partition, "by": self.by, "since": self.since}

    def covers(self, topic: str, partition: int) -> bool:
        return self.topic is None or (self.topic == topic and self.partition in (None, partition))


def is_paused(scopes: Iterable[Scope], topic: str, partition: int) -> bool:
    """Whether some scope covers this partition."""
    return any(scope.covers(topic, partition) for scope in scopes)


@dataclass(frozen=True, slots=True)
class Operation:
    """What was asked for, with the id under which its outcome is asked for."""

    id: str
    rpc: str
    params: JsonObject


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far an operation has come; `text` is one sentence for the operator."""

    state: OperationState = "running"
    text: str = ""
    result: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {"state": self.state, "text": self.text, "result": self.result}


class Inbox:
    """Between the agent's thread, which accepts, and the owner's, which takes and reports. Every method is safe on any
    thread and waits for nothing."""

    def __init__(self, paused: Sequence[Scope] = ()) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Operation] = deque()
        self._outcomes: dict[str, Outcome] = {}
        self._paused = tuple(paused)
        self.taken_at: float | None = None
        """`time.monotonic()` at which the owning thread last came for operations; None before its first turn. One that
        hangs comes no more, while the agent goes on answering."""

    @property
    def paused(self) -> tuple[Scope, ...]:
        """What is not to be read from now on; replaced as a whole."""
        return self._paused

    def pause(self, scopes: Sequence[Scope]) -> None:
        """Exactly these scopes from now on."""
        self._paused = tuple(scopes)

    def accept(self, operation: Operation) -> None:
        """Once: an operation of an id that is known already is the same one, asked again over a new connection."""
        with self._lock:
            if operation.id in self._outcomes:
                return
            self._outcomes[operation.id] = Outcome()
            while len(self._outcomes) > _KEPT_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]
            self._waiting.append(operation)

    def take(self) -> list[Operation]:
        """What was accepted since the last time, oldest first."""
        self.taken_at = time.monotonic()
        if not self._waiting:
            return []
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def report(self, id_: str, outcome: Outcome) -> None:
        """What became of an operation."""
        with self._lock:
            self._outcomes[id_] = outcome

    def outcome(self, id_: str) -> Outcome | None:
        """None of an operation that this process has never been given, or long ago."""
        with self._lock:
            return self._outcomes.get(id_)
