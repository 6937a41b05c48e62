"""The immutable snapshot that a process publishes, and from which its agent answers questions."""

from dataclasses import dataclass
from typing import TypeVar

from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.workers import WorkerReply

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Snapshot:
    published_at: float  # by `time.monotonic()`; ages in the replies refer to this moment
    worker: WorkerReply
    progress: int = 0
    """Increases with each batch, and during a long batch whenever stored offsets move."""
    replies: tuple[object, ...] = ()
    """At most one of each type in `replies.questions`. None or absent: not known yet."""
    not_read: frozenset[tuple[str, int]] = frozenset()
    """Assigned partitions that this worker keeps but cannot or must not read."""

    def reply(self, kind: type[R]) -> R | None:
        return next((each for each in (self.worker, *self.replies) if isinstance(each, kind)), None)

    @property
    def partitions(self) -> tuple[PartitionReply, ...]:
        reply = self.reply(PartitionsReply)
        return () if reply is None else reply.rows
