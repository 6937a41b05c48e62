"""The message passed to a handler. Standard library only, so that a handler's tests need nothing else."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One Kafka message. `timestamp` is in milliseconds since 1970; a key or value of None is Kafka's null, not
    empty."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    tries: int = 0
    """Earlier deliveries that were neither acknowledged nor released."""
