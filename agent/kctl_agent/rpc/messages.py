"""Requests and replies as JSON objects, and names of methods.

Unknown fields are ignored, because a newer peer may send them. A known field with a wrong value is rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final, Protocol

from kctl_agent.errors import BadRequest
from kctl_agent.rpc.wire import JsonObject

PROTOCOL_VERSION: Final = 1
MAX_ID_LENGTH: Final = 128


class Role(IntEnum):
    """The sender of a request: either the master, or an external caller such as the CLI."""

    EXTERNAL = 0
    MASTER = 1


def wire_method(rpc: str) -> str:
    """Returns the name of the method that queries one process: `kafka_lag` -> `getKafkaLag`."""
    return "get" + _camel(rpc)


def reducer_method(rpc: str) -> str:
    """Returns the name of the master's method that queries all agents or runs an operation, such as `onKafkaLag`."""
    return "on" + _camel(rpc)


def _camel(rpc: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in rpc.split("_"))


@dataclass(frozen=True, slots=True)
class Request:
    """A question or an operation. `deadline_ms` counts from when the request is sent."""

    role: Role
    rpc: str
    method: str
    id: str | None = None
    params: JsonObject = field(default_factory=dict)
    deadline_ms: int | None = None

    @classmethod
    def parse(cls, frame: JsonObject) -> Request:
        """Parses a frame. Only `role`, `rpc` and `method` are required. Raises BadRequest, naming the wrong field."""
        check_request(frame)
        get = frame.get
        return cls(
            _ROLES[frame["role"]], frame["rpc"], frame["method"], get("id"), get("params") or {}, get("deadline_ms")
        )

    def to_json(self) -> JsonObject:
        frame: JsonObject = {"v": PROTOCOL_VERSION}
        if self.id is not None:
            frame["id"] = self.id
        frame |= {"role": int(self.role), "rpc": self.rpc, "method": self.method, "params": self.params}
        if self.deadline_ms is not None:
            frame["deadline_ms"] = self.deadline_ms
        return frame


def check_request(frame: JsonObject) -> None:
    """Checks a frame as `Request.parse` does, but faster, because it makes no `Request`. Raises BadRequest."""
    get = frame.get
    version, role, id_, deadline_ms = get("v", PROTOCOL_VERSION), get("role"), get("id"), get("deadline_ms")
    if version != PROTOCOL_VERSION or type(version) is not int:
        raise BadRequest(f'"v" must be {PROTOCOL_VERSION}, the only supported version of the protocol')
    if type(role) is not int or role not in _ROLES:
        raise BadRequest('"role" must be 0 (an external caller) or 1 (the master)')
    if type(get("rpc")) is not str or not frame["rpc"]:
        raise BadRequest('"rpc" must be the name of a command, such as "kafka_lag"')
    if type(get("method")) is not str or not frame["method"]:
        raise BadRequest('"method" must be the name of a method, such as "getKafkaLag"')
    if id_ is not None and (type(id_) is not str or len(id_) > MAX_ID_LENGTH):
        raise BadRequest(f'"id" must be a string of at most {MAX_ID_LENGTH} characters')
    params = get("params")
    if params is not None and type(params) is not dict:
        raise BadRequest('"params" must be an object')
    if deadline_ms is not None and (type(deadline_ms) is not int or not 0 < deadline_ms < _LARGEST):
        raise BadRequest('"deadline_ms" must be a whole number of milliseconds above 0')


_LARGEST: Final = 2**63
"""Kafka's numbers have 64 bits. JSON and Python have no limit, and a number from 2**1024 on cannot become a float."""
_ROLES: Final = {int(role): role for role in Role}


def reply_ok(
    id: str | None,  # noqa: A002 - the wire's own word
    result: JsonObject,
    sender: str,
    age_seconds: float | None,
    **completeness: Any,
) -> JsonObject:
    frame = {"v": PROTOCOL_VERSION, "id": id, "ok": True, "result": result, "from": sender, "age_seconds": age_seconds}
    return frame | completeness


class PublicError(Protocol):
    code: ClassVar[str]
    retriable: ClassVar[bool]


def reply_error(id: str | None, error: PublicError) -> JsonObject:  # noqa: A002 - the wire's own word
    """Makes the reply that reports an error. The peer sees the error's text, so this text must not reveal internals."""
    failure = {"code": error.code, "message": str(error), "retriable": error.retriable}
    return {"v": PROTOCOL_VERSION, "id": id, "ok": False, "error": failure}


def readable_id(frame: JsonObject) -> str | None:
    id_ = frame.get("id")
    return id_ if type(id_) is str and len(id_) <= MAX_ID_LENGTH else None


def is_plain_number(value: object) -> bool:
    """Returns False for NaN, infinities and numbers beyond 64 bits, and True for all else, even if it is no number."""
    return not isinstance(value, int | float) or -_LARGEST <= value < _LARGEST


def number_of(count: int, noun: str, plural: str = "") -> str:
    """Formats a count with its noun: `1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def printable_name(name: str) -> str:
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "_-.") else "?" for char in name[:40])
    return kept + "..." if len(name) > 40 else kept or "(empty)"
