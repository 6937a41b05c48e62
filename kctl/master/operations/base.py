"""What an operation is: its caller, its parameters, what it touches, how far it has come. No I/O in here."""

from __future__ import annotations

import math
import pwd
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.rpc.messages import is_plain_number, printable_name
from kctl_agent.rpc.wire import JsonObject

__all__ = [
    "Caller",
    "Carry",
    "Operation",
    "OperationState",
    "OperationType",
    "Param",
    "Report",
    "check",
    "contradiction",
]

OperationState: TypeAlias = Literal["running", "done", "failed", "unknown"]
"""After `failed` nothing changes any more; `unknown` may still happen."""


@dataclass(frozen=True, slots=True)
class Report:
    """Reports in one sentence how far an operation has come, which has to end before `until`."""

    write: Callable[[str], object]
    until: float = math.inf
    """`time.monotonic()`"""

    def __call__(self, text: str) -> None:
        self.write(text)


Carry: TypeAlias = Callable[[JsonObject, "Caller", Report], Awaitable[tuple[str, JsonObject]]]
"""(checked params, caller, report) -> what has happened, in one sentence and as an object. Raises what went wrong."""

_KINDS: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation: on the socket a user, as the kernel reports it (SO_PEERCRED); over HTTP a token."""

    uid: int | None
    pid: int | None = None
    via: Literal["socket", "http", "signal"] = "socket"
    token: str = ""
    """The name of the token, where it has one."""

    @property
    def name(self) -> str:
        if self.uid is None:
            return f"{self.via} token {self.token}".rstrip()
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an operation."""

    name: str
    kind: Literal["string", "integer", "number", "boolean"]
    summary: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class OperationType:
    """One entry of the table of operations. A long one is answered with its id while it is under way."""

    name: str
    summary: str
    params: tuple[Param, ...]
    touches: Callable[[JsonObject], frozenset[str]]
    """What it must have for itself: a process by its name, `reading`, `scale`. Nothing: it contradicts no other."""
    carry: Carry
    deadline_seconds: Callable[[JsonObject], float]
    is_long: bool = False
    changes: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation and how far it has come; replaced as a whole whenever that changes."""

    id: str
    name: str
    params: JsonObject
    by: str
    uid: int | None
    via: str
    started_at: float
    """Unix seconds, as is `ended_at`."""
    deadline_seconds: float
    touches: frozenset[str]
    state: OperationState = "running"
    text: str = ""
    result: JsonObject = field(default_factory=dict)
    ended_at: float | None = None

    @property
    def words(self) -> str:
        """`restart worker-0`, `restart all rolling`, `pause topic orders`"""
        given = [_in_words(name, value) for name, value in self.params.items()]
        return " ".join([self.name.replace("_", "-"), *filter(None, given)])

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "operation": self.name,
            "params": self.params,
            "by": self.by,
            "uid": self.uid,
            "via": self.via,
            "state": self.state,
            "text": self.text,
            "result": self.result,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "deadline_seconds": self.deadline_seconds,
        }


def _in_words(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name.replace("_", "-") if value else ""
    if name == "deadline_seconds":
        return f"within {value:g} s"
    return str(value) if name in ("name", "level") else f"{name} {value}"


def check(kind: OperationType, params: JsonObject) -> None:
    """Refuse parameters that this operation does not take.

    Raises:
        BadParams: a parameter is unknown, missing, or of another type; the message names it.
    """
    known = {param.name: param for param in (*kind.params, _DEADLINE)}
    for name, value in params.items():
        param = known.get(name)
        if param is None:
            raise BadParams(f'{kind.name} has no parameter "{printable_name(name)}"; it takes {", ".join(known)}')
        if type(value) not in _KINDS[param.kind]:
            raise BadParams(f'{kind.name}: parameter "{name}" must be of type {param.kind}')
        if not is_plain_number(value):
            raise BadParams(f'{kind.name}: parameter "{name}" must be a finite number of 64 bits')
    for param in kind.params:
        if param.required and param.name not in params:
            raise BadParams(f'{kind.name}: parameter "{param.name}" is missing')
    if params.get("deadline_seconds", 1) <= 0:
        raise BadParams(f"{kind.name}: deadline_seconds must be above 0")


_DEADLINE = Param("deadline_seconds", "number", "give up after so long")


def contradiction(running: Iterable[Operation], touches: frozenset[str]) -> Operation | None:
    """The operation under way that touches what this one touches; None when it may begin."""
    return next((operation for operation in running if touches & operation.touches), None)
