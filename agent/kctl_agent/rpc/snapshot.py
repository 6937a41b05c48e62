"""The immutable snapshot of a process that its owning thread publishes and its agent answers from, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.member_leader import MemberReply
from kctl_agent.replies.metadata import BrokersReply, TopicsReply
from kctl_agent.replies.partitions import PartitionReply
from kctl_agent.replies.workers import WorkerReply


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything an agent can answer at one moment. None: not known yet."""

    published_at: float
    """`time.monotonic()`; the ages in the replies are those of this moment."""
    worker: WorkerReply
    progress: int = 0
    """Rises with each batch and, while one runs for long, whenever stored offsets have moved."""
    member: MemberReply | None = None
    partitions: tuple[PartitionReply, ...] = ()
    not_read: frozenset[tuple[str, int]] = frozenset()
    """Those of them that stay with this worker, and nobody is to read or can read."""
    brokers: BrokersReply | None = None
    topics: TopicsReply | None = None
    storage: StorageReply | None = None
