"""The immutable snapshot of a process that its owning thread publishes and its agent answers from, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import WorkerReply

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything an agent can answer at one moment."""

    published_at: float
    """`time.monotonic()`; the ages in the replies are those of this moment."""
    worker: WorkerReply
    progress: int = 0
    """Rises with each batch and, while one runs for long, whenever stored offsets have moved."""
    replies: tuple[object, ...] = ()
    """The other replies, at most one of each type that `replies.questions` names. None and absent: not known yet."""
    not_read: frozenset[tuple[str, int]] = frozenset()
    """Assigned partitions that stay with this worker, and nobody is to read or can read."""

    def reply(self, kind: type[R]) -> R | None:
        """Returns the reply of this type, None if it is not known yet."""
        return next((each for each in (self.worker, *self.replies) if isinstance(each, kind)), None)

    @property
    def partitions(self) -> tuple[PartitionReply, ...]:
        """The assigned partitions, sorted."""
        reply = self.reply(PartitionsReply)
        return () if reply is None else reply.rows
