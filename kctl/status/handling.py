"""What is wrong with the messages behind Kafka: those that wait too long, dead letters, and the handler. Pure.

Each finding is `degraded`: messages flow, but not as they should.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kctl.status.unhandled import Unhandled
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.rpc.messages import number_of


class HandlingFinding(NamedTuple):
    about: str
    what: str
    """What has been so, without numbers that change."""
    why: str | None
    seconds: float = 0.0
    """For how long it is known to be so."""


def stored_words(storage: StorageReply) -> str | None:
    """Returns how many messages wait in the storage; None if none does, or it is not known."""
    count = (storage.pending or 0) + (storage.processing or 0)
    if not count:
        return None
    delayed = f", {storage.delayed} of them for their next try" if storage.delayed else ""
    return f"{number_of(count, 'message')} wait{'s' if count == 1 else ''} in the storage{delayed}"


def late(unhandled: Unhandled, storage: StorageReply) -> Iterator[HandlingFinding]:
    """Yields a finding if the oldest unhandled message is too old and its age does not fall."""
    if unhandled.is_late:
        limit = f"the limit (status.oldest_limit) is {unhandled.limit_seconds:.0f} s"
        why = "; ".join(filter(None, (f"{_oldest(unhandled)}, {limit}", stored_words(storage))))
        yield HandlingFinding("unhandled", "messages have waited too long", why)


def progress_words(unhandled: Unhandled, storage: StorageReply) -> Iterator[str]:
    """Yields what to say of messages that wait, where that is no trouble."""
    if unhandled.is_catching_up:
        yield f"catching up: {_oldest(unhandled)}"
    if (stored := stored_words(storage)) is not None:
        yield stored


def _oldest(unhandled: Unhandled) -> str:
    return f"the oldest unhandled message is {unhandled.seconds:.0f} s old"
