"""The metadata that a worker commits with an offset: the storage with the messages below it, and the log that was read.
Pure. An offset committed without such a note is another client's and resets the group."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kctl_agent.worker.offsets.epochs import LogSeen

FORMAT = 1
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class StorageId:
    """A random id and the location, both from when the storage was created."""

    id: str
    name: str

    def is_of(self, other: StorageId) -> bool:
        """Whether this is the same storage, even if it has moved. One without an id equals any other."""
        return not self.id or not other.id or self.id == other.id


@dataclass(frozen=True, slots=True)
class CommitNote:
    storage: StorageId
    topic_id: str | None = None
    seen: LogSeen | None = None

    def format(self) -> str:
        fields: dict[str, object] = {"kctl": FORMAT, "storage": self.storage.id, "at": self.storage.name[:MAX_NAME]}
        if self.topic_id is not None:
            fields["topic"] = self.topic_id
        if self.seen is not None:
            fields |= {"leader_epoch": self.seen.epoch, "log_end": self.seen.end}
        return json.dumps(fields, separators=(",", ":"))


def log_seen(note: CommitNote | None, offset: int, leader_epoch: int | None) -> LogSeen | None:
    if note is not None:
        return note.seen
    return LogSeen(leader_epoch, offset) if leader_epoch is not None and leader_epoch >= 0 else None


def parse(metadata: str | None) -> CommitNote | None:
    """Reads a note; None if another client has committed the offset."""
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
