"""The metadata that a worker commits with an offset: the storage that holds what lies below, and the log that was read.

A committed offset without such a note was written by somebody else, who thereby reset the group; one with it is what a
worker had stored, wherever the stored offset of the storage is now. Pure. A note takes about 200 of 4,096 bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kctl_agent.worker.offsets.epochs import LogSeen

FORMAT = 1
MAX_NAME = 200
"""Most characters of a storage's name in a commit; only people read it."""


@dataclass(frozen=True, slots=True)
class StorageId:
    """A storage as a commit names it: the random id that it got when it was made, and where it was."""

    id: str
    name: str

    def is_of(self, other: StorageId) -> bool:
        """Whether both are one storage, wherever it is now. One without an id keeps nothing, and is like any other."""
        return not self.id or not other.id or self.id == other.id


@dataclass(frozen=True, slots=True)
class CommitNote:
    """A commit's metadata: the storage that holds what lies below the offset, the topic's id, and the log as seen."""

    storage: StorageId
    topic_id: str | None = None
    seen: LogSeen | None = None

    def format(self) -> str:
        """Returns the note as the metadata string of a commit."""
        fields: dict[str, object] = {"kctl": FORMAT, "storage": self.storage.id, "at": self.storage.name[:MAX_NAME]}
        if self.topic_id is not None:
            fields["topic"] = self.topic_id
        if self.seen is not None:
            fields |= {"leader_epoch": self.seen.epoch, "log_end": self.seen.end}
        return json.dumps(fields, separators=(",", ":"))


def log_seen(note: CommitNote | None, offset: int, leader_epoch: int | None) -> LogSeen | None:
    """Returns the log as it was seen when an offset was committed; for another client's offset, by its leader epoch."""
    if note is not None:
        return note.seen
    return LogSeen(leader_epoch, offset) if leader_epoch is not None and leader_epoch >= 0 else None


def parse(metadata: str | None) -> CommitNote | None:
    """Parses the metadata of a commit; None: another client has committed the offset."""
    try:
        document = json.loads(metadata or "null")
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("kctl"), int):
        return None
    epoch, end = document.get("leader_epoch"), document.get("log_end")
    seen = LogSeen(epoch, end) if isinstance(epoch, int) and isinstance(end, int) else None
    storage = StorageId(str(document.get("storage", "")), str(document.get("at", "")))
    return CommitNote(storage, document.get("topic"), seen)
