"""Where a worker begins to read a partition: committed offset, mark, log and reset policy weighed against each other.

Pure: no broker, no storage, no clock. The cases are those in which a mark that is trusted blindly loses messages
(docs/architecture.md, "What the mark may not hide").
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.storage.base import Mark
from kctl_agent.worker.epochs import LogSeen

__all__ = ["Found", "Moved", "Start", "decide"]


@dataclass(frozen=True, slots=True)
class Found:
    """What the broker says of one partition. `committed` is None when the group has no offset for it."""

    topic: str
    partition: int
    topic_id: str | None
    committed: int | None
    log_start: int
    log_end: int
    seen: LogSeen | None = None
    """Which leader has told the end; None when the brokers are too old to say."""
    diverged: int | None = None
    """From here on the log is another one than was read; None: it is the same, or nobody can tell."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The read position did not simply go on. `kind`: rewound, skipped, topic_recreated, truncated, records_lost."""

    kind: str
    from_offset: int
    to_offset: int

    def sentence(self, where: str) -> str:
        """For logs and events; `where` is `topic-partition`."""
        return {
            "rewound": f"{where}: the group was reset from {self.from_offset} back to {self.to_offset}; "
            f"offsets from {self.to_offset} on are read again",
            "skipped": f"{where}: the group was reset from {self.from_offset} forward to {self.to_offset}; "
            f"{self.to_offset - self.from_offset} offsets are skipped",
            "topic_recreated": f"{where}: the topic was deleted and made again; "
            f"the mark {self.from_offset} is void, reading starts at {self.to_offset}",
            "truncated": f"{where}: the log was truncated to {self.to_offset}, below the mark {self.from_offset}: "
            "stored messages are no longer in Kafka; it is read on from there",
            "records_lost": f"{where}: {self.to_offset - self.from_offset} offsets from {self.from_offset} on were "
            "removed by retention before they were read",
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Start:
    """The first offset to read, the mark to place (None: the mark stays as it is) and what has to be told."""

    offset: int
    mark: Mark | None
    moved: tuple[Moved, ...]


def decide(found: Found, mark: Mark | None, auto_offset_reset: str) -> Start:
    """Weigh one partition.

    Without a mark the committed offset counts, without either `auto_offset_reset` ("earliest" or "latest"). With a
    mark: another topic id voids it, a committed offset below the recorded one or above the mark is a reset and is
    honoured; a committed offset between the two, or none, was a crash between put and commit: go on from the mark. At
    last the offset is brought into the log: above its end, or above the offset from which on it is another one, is
    truncation, below its start is loss by retention.
    """
    moved: list[Moved] = []
    if mark is None:
        offset = found.committed if found.committed is not None else _reset(found, auto_offset_reset)
    elif _recreated(found, mark):
        offset = found.log_start
        moved.append(Moved("topic_recreated", mark.next, offset))
    elif found.committed is not None and mark.committed is not None and found.committed < mark.committed:
        offset = found.committed
        moved.append(Moved("rewound", mark.next, offset))
    elif found.committed is not None and found.committed > mark.next:
        offset = found.committed
        moved.append(Moved("skipped", mark.next, offset))
    else:
        offset = mark.next
    end = found.log_end if found.diverged is None else min(found.log_end, max(found.diverged, found.log_start))
    if offset > end:
        moved.append(Moved("truncated", offset, end))
        offset = end
    elif offset < found.log_start:
        moved.append(Moved("records_lost", offset, found.log_start))
        offset = found.log_start
    kept = mark is not None and mark.next == offset and mark.topic_id == found.topic_id
    placed = None if kept else Mark(found.topic, found.partition, found.topic_id, offset, offset)
    return Start(offset, placed, tuple(moved))


def _recreated(found: Found, mark: Mark) -> bool:
    return found.topic_id is not None and mark.topic_id is not None and found.topic_id != mark.topic_id


def _reset(found: Found, auto_offset_reset: str) -> int:
    return found.log_start if auto_offset_reset == "earliest" else found.log_end
