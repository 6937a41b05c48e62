"""Decides where reading a partition begins. See docs/architecture.md, "What the stored offset must not hide"."""

from collections.abc import Callable
from dataclasses import dataclass

from kctl_agent.errors import BadParams
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.offsets.commit_metadata import CommitNote, LogSeen, StorageId


@dataclass(frozen=True, slots=True)
class Found:
    """The brokers' answers for a partition. `note` is None if no offset or another client's offset is committed."""

    topic: str
    partition: int
    topic_id: str | None
    committed: int | None
    log_start: int
    log_end: int
    note: CommitNote | None = None
    seen: LogSeen | None = None  # None if the brokers are too old for leader epochs
    diverged: int | None = None
    """The offset from which the log differs from the one that was read; None if it does not, or if that is unknown."""


@dataclass(frozen=True, slots=True)
class Moved:
    """An unexpected start offset, which is reported as an event of this `kind`."""

    kind: str
    from_offset: int
    to_offset: int
    storages: tuple[str, str] = ("", "")

    def sentence(self, where: str) -> str:
        return f"{where}: {self.cause}; {self._effect}"

    @property
    def cause(self) -> str:
        begin, end = self.from_offset, self.to_offset
        theirs, ours = self.storages
        return {
            "rewound": f"the group was reset from {begin} back to {end}",
            "skipped": f"the group was reset from {begin} forward to {end}",
            "topic_recreated": "the topic was deleted and recreated",
            "truncated": f"the log was truncated to {end}, below the stored offset {begin}, so some stored messages "
            "are no longer in Kafka",
            "records_lost": f"{end - begin} offsets from {begin} on were removed by retention before they were read",
            "storage_rolled_back": f"the storage {ours} has gone back in time: the group has committed offset {begin} "
            f"with it, but it has only messages below {end}",
            "storage_lost_offsets": f"the group has committed offset {begin} with the storage {ours}, which no longer "
            "knows the partition: it was emptied or replaced, or has gone back to before the partition was first read",
            "other_storage": f"offset {begin} was committed with another storage, {theirs}; this one is {ours}",
        }[self.kind]

    @property
    def _effect(self) -> str:
        begin, end = self.from_offset, self.to_offset
        return {
            "rewound": f"offsets from {end} on are read again",
            "skipped": f"{end - begin} offsets are skipped",
            "topic_recreated": f"offset {begin} of the earlier topic is void, so reading starts at {end}",
            "storage_rolled_back": f"offsets {end} to {begin - 1} are read again",
            "storage_lost_offsets": f"reading continues at {end}; messages below that were lost unless they had been "
            "handled",
        }.get(self.kind, f"reading continues at {end}")


@dataclass(frozen=True, slots=True)
class StartOffset:
    """The offset where reading a partition begins. If `must_commit`, commit it with a note before reading. Without
    this commit, the next start could mistake the old committed offset for a new reset of the group."""

    offset: int
    stored_offset: StoredOffset | None
    moved: tuple[Moved, ...]
    must_commit: bool


def decide(found: Found, stored: StoredOffset | None, first: int, storage: StorageId) -> StartOffset:
    """Decides where reading a partition begins. `first` is the offset for a partition that was never read.

    - A changed topic id invalidates the stored offset and an offset committed with the old id. An unknown id does not.
    - If the committed offset has no note, another client committed it, and reading begins there. If the stored
      offset differs, this is reported as a move.
    - If the note names this storage, reading continues at the stored offset. A higher committed offset shows that the
      storage was rolled back. If the storage has no stored offset, reading begins at the committed offset.
    - If the note names another storage, the committed offset replaces the stored offset.

    Finally, if the log was truncated below the offset, the offset is lowered to the log's end, or to the first offset
    at which the log has changed. If retention has removed unread records, the offset is raised to the log's start.
    """
    end = found.log_end if found.diverged is None else min(found.log_end, max(found.diverged, found.log_start))
    offset, moved = _go_on(found, stored, first, storage, end)
    if offset > end:
        moved.append(Moved("truncated", offset, end))
        offset = end
    elif offset < found.log_start:
        moved.append(Moved("records_lost", offset, found.log_start))
        offset = found.log_start
    topic_id = found.topic_id or (stored.topic_id if stored else None)
    # If the log differs, even an equal stored offset is set again: its new version stops tasks of the old log.
    kept = stored is not None and stored.next == offset and stored.topic_id == topic_id and found.diverged is None
    placed = None if kept else StoredOffset(found.topic, found.partition, topic_id, offset)
    is_ours = found.note is not None and found.note.storage.id == storage.id
    must_commit = found.committed is not None and (not is_ours or found.committed > offset)
    return StartOffset(offset, placed, tuple(moved), must_commit)


def _go_on(
    found: Found, stored: StoredOffset | None, first: int, storage: StorageId, end: int
) -> tuple[int, list[Moved]]:
    committed, note = found.committed, found.note
    if stored is not None and _is_other(found.topic_id, stored.topic_id):
        return found.log_start, [Moved("topic_recreated", stored.next, found.log_start)]
    if committed is None:
        return stored.next if stored else first, []
    if note is None:
        if stored is None or committed == stored.next:
            return committed, []
        return committed, [Moved("rewound" if committed < stored.next else "skipped", stored.next, committed)]
    names = (note.storage.name, storage.name)
    if not note.storage.is_of(storage) and note.storage.name != storage.name:
        return committed, [Moved("other_storage", committed, committed, names)]
    if _is_other(found.topic_id, note.topic_id):
        return (stored.next, []) if stored else (first, [Moved("topic_recreated", committed, first)])
    if stored is None:
        return committed, [Moved("storage_lost_offsets", committed, committed, names)]
    once = min(committed, end)  # commits above the end of a truncated log do not count
    return stored.next, [Moved("storage_rolled_back", once, stored.next, names)] if once > stored.next else []


def _is_other(topic_id: str | None, before: str | None) -> bool:
    return topic_id is not None and before is not None and topic_id != before


@dataclass(frozen=True, slots=True)
class SeekPlan:
    topic: str
    partition: int
    position: int | None
    target: int

    @property
    def skipped(self) -> int:
        return max(self.target - self.position, 0) if self.position is not None else 0

    @property
    def again(self) -> int:
        return max(self.position - self.target, 0) if self.position is not None else 0

    @property
    def sentence(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.position is None:
            return f"{where}: continues at {self.target}"
        offsets = number_of(self.skipped or self.again, "offset is", "offsets are")
        if self.skipped:
            return f"{where}: from {self.position} forward to {self.target}; {offsets} skipped"
        if self.again:
            return f"{where}: from {self.position} back to {self.target}; {offsets} handled again"
        return f"{where}: is at {self.target} already"

    def to_json(self) -> JsonObject:
        move = {"from": self.position, "to": self.target, "skipped": self.skipped, "again": self.again}
        return {"topic": self.topic, "partition": self.partition, **move}


def plan(to: str, found: Found, position: int | None, offset_at: Callable[[int], int | None]) -> SeekPlan:
    """Plans a seek. `to` is `earliest`, `latest`, an offset, or `@` and milliseconds since 1970. A time selects the
    first record that is not older, or the end of the log. Raises BadParams if `to` is malformed or outside the log."""
    begin, end = found.log_start, found.log_end
    if to in ("earliest", "latest"):
        target = begin if to == "earliest" else end
    elif to.startswith("@") and (milliseconds := _number(to[1:])) is not None:
        at = offset_at(milliseconds)
        target = end if at is None else at
    elif (offset := _number(to)) is not None:
        target = offset
    else:
        raise BadParams("a seek goes to earliest, latest, an offset, or @milliseconds")
    if not begin <= target <= end:
        raise BadParams(
            f"{found.topic}-{found.partition} has offsets from {begin} to {end}, so {target} is not one of them"
        )
    return SeekPlan(found.topic, found.partition, position, target)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 and int(text) < 2**63 else None
