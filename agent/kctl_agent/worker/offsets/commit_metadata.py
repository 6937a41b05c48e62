"""The note that a worker commits with an offset. It names the storage of the messages below the offset, and the log's
topic id, leader epoch and end. If an offset has no note, another client or a seek may have reset the group.

Leader epochs (KIP-320) reveal a truncation. The end of a log does not, because a truncated log may grow again. The
worker asks the leader where the noted epoch ends. If this is below the noted log end, the records in between are lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import TopicPartition

from kctl_agent.errors import BadPayload
from kctl_agent.rpc.wire import parse_object

FORMAT = 1
MAX_NAME = 200


@dataclass(frozen=True, slots=True, order=True)
class LogSeen:
    """The end of a log, as the leader of `epoch` reported it. The log may be longer by now."""

    epoch: int
    end: int


def divergence(before: LogSeen, end_of_epoch: int | None) -> int | None:
    """Returns the first offset at which a log differs from `before`, or None if no difference is known. `end_of_epoch`
    is where the epoch of `before` ends in the log now, or negative if that is unknown."""
    return end_of_epoch if end_of_epoch is not None and 0 <= end_of_epoch < before.end else None


class Epochs:
    """The last seen log end of each partition. `known` leaves out partitions that this worker gave up. Their logs are
    compared with the committed note, because another worker may have committed a newer note. Only one thread calls
    `began`, `observe` and `committed`."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, LogSeen] = {}
        self._committed: dict[TopicPartition, LogSeen] = {}
        self._given_up: frozenset[TopicPartition] = frozenset()

    @property
    def known(self) -> dict[TopicPartition, LogSeen]:
        return {tp: seen for tp, seen in self._seen.items() if tp not in self._given_up}

    def began(self, found: Mapping[TopicPartition, LogSeen | None]) -> None:
        self._seen = {tp: seen for tp, seen in {**self._seen, **found}.items() if seen is not None}
        self._given_up -= found.keys()

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        self._given_up |= frozenset(partitions)

    def observe(self, logs: Mapping[TopicPartition, LogSeen]) -> None:
        """Records newer log ends, and ignores answers of older leaders."""
        newer = {tp: log for tp, log in logs.items() if (before := self._seen.get(tp)) is None or log > before}
        self._seen = {**self._seen, **newer}

    def seen(self, tp: TopicPartition) -> LogSeen | None:
        return self._seen.get(tp)

    def committed(self, partitions: Collection[TopicPartition]) -> None:
        self._committed = {**self._committed, **{tp: self._seen[tp] for tp in partitions if tp in self._seen}}

    def uncommitted(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns each position above the log end in its committed note. Commit these positions again with a newer
        note, because the old note does not reveal a truncation above its log end."""
        return {
            tp: position
            for tp, position in positions.items()
            if (seen := self._seen.get(tp)) is not None
            and (noted := self._committed.get(tp)) is not None
            and noted.end < position <= seen.end
        }


@dataclass(frozen=True, slots=True)
class StorageId:
    """Identifies a storage. `id` is random, and made when a group first uses the storage. `name` is its location."""

    id: str
    name: str

    def is_of(self, other: StorageId) -> bool:
        """Whether the ids match or one is missing. If ids differ, compare names: an emptied storage has a new id."""
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
    """Parses the metadata of a committed offset. Returns None if another client has committed the offset."""
    try:
        document = parse_object((metadata or "").encode())
    except BadPayload:
        return None
    if not isinstance(document.get("kctl"), int):
        return None
    epoch, end = document.get("leader_epoch"), document.get("log_end")
    seen = None
    if isinstance(epoch, int) and isinstance(end, int) and 0 <= epoch < 2**31 and 0 <= end < 2**63:
        seen = LogSeen(epoch, end)
    storage = StorageId(str(document.get("storage", "")), str(document.get("at", "")))
    return CommitNote(storage, document.get("topic"), seen)
