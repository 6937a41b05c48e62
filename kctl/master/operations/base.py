"""The data of an operation and its progress. No I/O."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kctl.ownership import user_name
from kctl_agent.replies.encode import fields_of
from kctl_agent.replies.workers import Event
from kctl_agent.rpc.wire import JsonObject

OperationState: TypeAlias = Literal["running", "done", "failed", "unknown"]
"""After `failed` nothing changes any more; after `unknown` it may."""


@dataclass(frozen=True, slots=True)
class Report:
    """Reports an operation's progress. `until` is the operation's deadline (`time.monotonic()`)."""

    write: Callable[[str], object]
    until: float = math.inf

    def __call__(self, text: str) -> None:
        self.write(text)


@dataclass(frozen=True, slots=True)
class Caller:
    uid: int | None
    pid: int | None = None
    via: Literal["socket", "http", "signal"] = "socket"
    token: str = ""
    sent_for: str = ""  # the caller at another host's master, which has sent the operation here

    @property
    def name(self) -> str:
        if self.uid is not None:
            return user_name(self.uid)
        return f"{self.via} token {self.token}".rstrip() + (f", for {self.sent_for}" if self.sent_for else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    name: str
    params: JsonObject
    by: str
    uid: int | None
    via: str
    state: OperationState = "running"
    text: str = ""
    result: JsonObject = field(default_factory=dict)
    started_at: float  # Unix seconds, as is `ended_at`
    ended_at: float | None = None
    deadline_seconds: float
    touches: frozenset[str]

    @property
    def words(self) -> str:
        """The operation in words, such as `restart worker-0` or `pause topic orders`."""
        given = [_in_words(name, value) for name, value in self.params.items()]
        return " ".join([self.name.replace("_", "-"), *filter(None, given)])

    def to_json(self) -> JsonObject:
        known = {"operation" if key == "name" else key: value for key, value in fields_of(self).items()}
        del known["touches"]
        if math.isinf(self.deadline_seconds):
            known["deadline_seconds"] = None
        return known

    def to_row(self) -> JsonObject:
        """Returns the operation as JSON, without its result, which may be large (150 kB for `stack`)."""
        row = self.to_json()
        del row["result"]
        return row


def _in_words(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name.replace("_", "-") if value else ""
    if name == "deadline_seconds":
        return f"within {value:g} s"
    if isinstance(value, tuple):
        return f"{len(value)} {name}"
    return str(value) if name in ("name", "level") else f"{name} {value}"


def operation_events(operation: Operation) -> list[Event]:
    """Returns the event of an operation that has ended, otherwise []."""
    if operation.ended_at is None:
        return []
    params = operation.params
    worker, topic, partition = params.get("name", params.get("worker")), params.get("topic"), params.get("partition")
    outcome = f"{operation.state}; {operation.text}" if operation.text else operation.state
    text = f"{operation.words}, by {operation.by}: {outcome}"
    return [Event(operation.ended_at, "operation", text, topic, partition, worker=worker)]
