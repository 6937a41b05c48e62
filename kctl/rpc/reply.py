"""Replies from an agent or the master: the frame around a result. As strict as the wire (docs/protocol.md)."""

from __future__ import annotations

from typing import Final

import msgspec

from kctl_agent.errors import BadPayload
from kctl_agent.rpc.wire import JsonObject, parse_object

_OBJECT: Final = ord("{")
_NONE: Final = msgspec.Raw(b"null")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """`sender` is set in a master's `failed`."""

    code: str
    message: str
    retriable: bool = False
    sender: str | None = None

    def to_json(self) -> JsonObject:
        sender = {} if self.sender is None else {"from": self.sender}
        return {**sender, "code": self.code, "message": self.message, "retriable": self.retriable}


class Reply(msgspec.Struct, frozen=True, rename={"sender": "from", "raw": "result"}):
    """`error` is set exactly if `ok` is false; an agent's reply is always complete."""

    ok: bool
    id: str | None = None
    raw: msgspec.Raw = msgspec.Raw(b"{}")
    """Decoded later by `kctl.rpc.decode`."""
    sender: str | None = None
    age_seconds: float | None = None
    error: Failure | None = None
    complete: bool = True
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    stopped: tuple[str, ...] = ()
    """Agents that were stopped by request, and so are not missing."""
    verdict: msgspec.Raw = _NONE
    """Set by a master."""

    @property
    def has_verdict(self) -> bool:
        return bytes(self.verdict) != b"null"

    @property
    def result(self) -> JsonObject:
        """Returns the result as sent. Raises BadPayload if it is not an object."""
        return parse_object(bytes(self.raw))


_decode: Final = msgspec.json.Decoder(Reply).decode


def reply_of(payload: bytes | bytearray) -> Reply:
    """Decodes a frame. Raises BadPayload, which names the field but quotes nothing."""
    try:
        reply = _decode(payload)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadPayload(f"what came is no reply: {_why(error)}") from None
    except (msgspec.DecodeError, RecursionError):
        raise BadPayload("the frame is not JSON") from None
    if reply.ok is (reply.error is not None):
        raise BadPayload("what came is no reply: exactly a refusal has an error")
    if memoryview(reply.raw)[0] != _OBJECT:
        raise BadPayload("what came is no reply: its result is not an object")
    return reply


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.ValidationError) else "it is not UTF-8"
