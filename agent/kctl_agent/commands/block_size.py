"""`block_size`: how much waits in the storage this worker puts into."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.errors import NotReady
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["BLOCK_SIZE", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """Messages by state (`delayed` ones are pending too), bytes, limits, and why the storage is full, if it is;
    `storage` is equal for workers that share one.

    Raises:
        NotReady: the worker has not opened its storage yet.
    """
    storage = snapshot.storage
    if storage is None:
        raise NotReady(f"{snapshot.name} has not opened its storage yet: ask again")
    return {
        "storage": storage.identity,
        "pending": storage.pending,
        "delayed": storage.delayed,
        "processing": storage.processing,
        "dead": storage.dead,
        "bytes": storage.bytes,
        "limit": storage.limit,
        "limit_bytes": storage.limit_bytes,
        "dead_limit": storage.dead_limit,
        "free_bytes": storage.free_bytes,
        "full": storage.full,
    }


BLOCK_SIZE = Command(
    "block_size", answer, "messages and bytes in the storage: pending, delayed, processing, dead; the limits"
)
