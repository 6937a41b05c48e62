"""A storage in the memory of this process, for tests: complete, and passes the suite as the others do.

Pickled, it comes back as the same storage within its process, as a file storage would.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import given_up, judge, opened, requeued
from kctl_agent.storage.base import Advance, Binding, Chunk, Put, Storage, StoredOffset, TopicPartition, Writer
from kctl_agent.storage.block import BLOCK_BYTES, Block
from kctl_agent.storage.claim import Claim, DeadLetter, DeadLetterGroup, PartitionStats, Settled, StorageStats
from kctl_agent.storage.dead_letter_groups import grouped
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.numbered_dead_letters import NumberedDeadLetters, Place
from kctl_agent.storage.put_rules import cut, judged, next_version, refuse_moved, refuse_other, skipped
from kctl_agent.storage.selection import EVERYTHING, Selection

__all__ = ["MemoryStorage"]

State = Literal["pending", "processing", "delayed"]


@dataclass(slots=True)
class _Queued:
    """A block and what is being done with it. `until`: end of its lease or of its delay, on the storage's clock."""

    block: Block
    since: float
    state: State = "pending"
    tries: int = 0
    owner: str = ""
    token: str = ""
    until: float = 0.0
    leased_at: float = 0.0

    def free(self, count_try: bool) -> int:
        self.state, self.owner, self.token = "pending", "", ""
        self.tries += count_try
        return self.block.count


class MemoryStorage(NumberedDeadLetters, Storage):
    """See `Storage`. `clock` gives seconds and never goes back."""

    def __init__(
        self,
        *,
        block_messages: int = 500,
        block_bytes: int = BLOCK_BYTES,
        codec: str = "none",
        limits: StorageLimits = StorageLimits(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.block_messages = block_messages
        self.block_bytes = block_bytes
        self.codec = codec
        self.limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._stored_offsets: dict[TopicPartition, StoredOffset] = {}
        self._owner: Binding | None = None
        self._queue: dict[str, _Queued] = {}
        self._dead: dict[int, DeadLetter] = {}
        self._dead_at: dict[tuple[object, ...], int] = {}
        """Where it was in Kafka, to the number of its newest dead letter."""
        self._ids = map(str, itertools.count(1))
        self._name = uuid.uuid4().hex
        _all[self._name] = self

    def __reduce__(self) -> tuple[Callable[[str], MemoryStorage], tuple[str]]:
        return _same, (self._name,)

    @property
    def identity(self) -> str:
        return f"memory:{self._name}"

    def prepare(self) -> None:
        """Nothing is missing."""

    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        with self._lock:
            return {tp: self._stored_offsets[tp] for tp in partitions if tp in self._stored_offsets}

    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        """No id: what is in memory is gone with the process, and the next one must go on all the same."""
        with self._lock:
            refuse_other(self.identity, owner, self._owner, take_over)
            self._owner = owner.known_from(self._owner)
        return ""

    def init_offsets(
        self,
        stored_offsets: Collection[StoredOffset],
        seen: Mapping[TopicPartition, StoredOffset] = MappingProxyType({}),
    ) -> None:
        with self._lock:
            for stored in stored_offsets:
                refuse_moved(stored.tp, self._stored_offsets.get(stored.tp), seen.get(stored.tp))
            self._stored_offsets.update(
                {stored.tp: next_version(stored, seen.get(stored.tp)) for stored in stored_offsets}
            )

    def advance_offsets(self, advances: Collection[Advance]) -> None:
        with self._lock:
            before = {each.tp: judged(each, self._stored_offsets.get(each.tp)) for each in advances}
            for each in advances:
                self._stored_offsets[each.tp] = replace(before[each.tp], next=max(before[each.tp].next, each.end))

    def writer(self) -> Writer:
        return _MemoryWriter(self)

    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        """What its writers do."""
        with self._lock:
            before = [judged(chunk, self._stored_offsets.get(chunk.tp)) for chunk in chunks]
            return [self._put(chunk, stored) for chunk, stored in zip(chunks, before, strict=True)]

    def _put(self, chunk: Chunk, stored: StoredOffset) -> Put:
        skip = skipped(chunk, stored)
        blocks = list(cut(chunk, skip, self.block_messages, self.block_bytes, self.codec))
        self._add(blocks)
        self._stored_offsets[chunk.tp] = replace(stored, next=max(stored.next, chunk.end))
        return Put(len(chunk.columns) - skip, skip, sum(len(block.body) for block in blocks))

    def blocks(self) -> Iterator[Block]:
        with self._lock:
            return iter([queued.block for queued in self._queue.values()])

    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        lease_until, token = time.monotonic() + lease_seconds, uuid.uuid4().hex
        claims: list[Claim] = []
        with self._lock:
            self._wake()
            while not claims and (taken := self._choose(limit, ordered, limit_bytes)):
                for _, queued in taken:
                    queued.state, queued.owner, queued.token = "processing", owner, token
                    queued.leased_at = self._clock()
                    queued.until = queued.leased_at + lease_seconds
                leased = [(id_, queued.tries, queued.block) for id_, queued in taken]
                claims, bad = opened(leased, owner, token, lease_until, time.time())
                for id_, dead_letter in bad.items():
                    del self._queue[id_]
                    self._add_dead([dead_letter])
        return claims

    def settle(
        self, claim: Claim, acks: Sequence[bool], *, reason: str = "", max_tries: int = 1, retry_seconds: float = 0.0
    ) -> Settled:
        verdict = judge(claim, acks, reason, max_tries, self.codec, time.time())
        with self._lock:
            queued = self._leased(claim)
            if queued is None:
                return Settled(is_lost=True)
            self._add_dead(verdict.dead)
            if verdict.again is None:
                del self._queue[claim.id]
            else:
                queued.free(count_try=True)
                queued.block, queued.state, queued.until = verdict.again, "delayed", self._clock() + retry_seconds
        return verdict.settled

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        with self._lock:
            queued = self._leased(claim)
            if queued is not None:
                queued.until = self._clock() + lease_seconds
            return queued is not None

    def release(self, owner: str, *, count_try: bool = False) -> int:
        with self._lock:
            return sum(queued.free(count_try) for queued in self._queue.values() if queued.owner == owner)

    def stats(self) -> StorageStats:
        with self._lock:
            found: dict[TopicPartition, PartitionStats] = {}
            for queued in self._queue.values():
                self._count(found, queued.block, queued.state, self._clock() - queued.since)
            for dead_letter in self._dead.values():
                self._count(found, dead_letter.block, "dead", None)
            return StorageStats.of(tuple(found[tp] for tp in sorted(found)), self.limits)

    def dead_letter(self, messages: Sequence[Message], error: str | Sequence[str], topic_id: str | None = None) -> None:
        with self._lock:
            self._add_dead(given_up(messages, error, topic_id, self.codec, time.time()))

    def _dead_now(self) -> float:
        return time.time()

    def _last_dead(self) -> int:
        with self._lock:
            return max(self._dead, default=0)

    def _dead_places(self, selection: Selection, after: Place | None, limit: int) -> list[Place]:
        with self._lock:
            places = sorted(Place.of(each) for each in self._dead.values() if selection.takes_dead_letter(each))
        return [place for place in places if after is None or place > after][:limit]

    def _read_dead(self, numbers: Sequence[int]) -> list[DeadLetter]:
        with self._lock:
            return [self._dead[number] for number in numbers if number in self._dead]

    def _indexed_groups(self, selection: Selection, hours: int, now: float) -> list[DeadLetterGroup]:
        return grouped(self.dead(selection), hours, now)

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:
        with self._lock:
            there = [each for each in dead_letters if int(each.id) in self._dead]
            blocks, ids = requeued(there, self.block_messages, self.block_bytes, self.codec)
            self._add(blocks)
            for id_ in ids:
                del self._dead[int(id_)]
            return len(ids)

    def _remove_dead(self, dead_letters: list[DeadLetter]) -> int:
        with self._lock:
            there = [self._dead.pop(int(each.id), None) for each in dead_letters]
            return len(there) - there.count(None)

    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        with self._lock:
            now, age = self._clock(), selection.older_than_seconds
            return sum(
                queued.free(count_try=queued.state == "processing")
                for queued in self._queue.values()
                if _is_selected(queued, selection)
                if queued.state == "delayed"
                or (queued.state == "processing" and (queued.until <= now or _is_older(now - queued.leased_at, age)))
            )

    def clear(self, selection: Selection = EVERYTHING) -> int:
        with self._lock:
            now, age = self._clock(), selection.older_than_seconds
            gone = [
                id_
                for id_, queued in self._queue.items()
                if queued.state != "processing" and _is_selected(queued, selection)
                if age is None or now - queued.since >= age
            ]
            return sum(self._queue.pop(id_).block.count for id_ in gone)

    @staticmethod
    def _count(found: dict[TopicPartition, PartitionStats], block: Block, state: str, age: float | None) -> None:
        tp = (block.topic, block.partition)
        found[tp] = found.get(tp, PartitionStats(*tp)).plus(state, block.count, len(block.body), age)

    def _add(self, blocks: list[Block]) -> None:
        self._queue.update({next(self._ids): _Queued(block, self._clock()) for block in blocks})

    def _add_dead(self, dead_letters: Iterable[DeadLetter]) -> None:
        for dead_letter in dead_letters:
            b = dead_letter.block
            place = (b.topic, b.partition, b.topic_id, b.first, b.last)
            self._dead.pop(self._dead_at.get(place, 0), None)  # the newest is the last
            number = self._dead_at[place] = int(next(self._ids))
            self._dead[number] = replace(dead_letter, id=str(number))

    def _leased(self, claim: Claim) -> _Queued | None:
        queued = self._queue.get(claim.id)
        return queued if queued is not None and queued.token == claim.token else None

    def _wake(self) -> None:
        for queued in self._queue.values():
            if queued.state != "pending" and queued.until <= self._clock():
                queued.free(count_try=queued.state == "processing")

    def _choose(self, limit: int, ordered: bool, limit_bytes: int | None) -> list[tuple[str, _Queued]]:
        chosen: list[tuple[str, _Queued]] = []
        room = float("inf") if limit_bytes is None else limit_bytes
        seen: set[TopicPartition] = set()
        for id_, queued in self._queue.items():  # in the order they were put
            tp = (queued.block.topic, queued.block.partition)
            if queued.state == "pending" and not (ordered and tp in seen):
                room -= len(queued.block.body)
                if chosen and room < 0:
                    break
                chosen.append((id_, queued))
                limit -= queued.block.count
            seen.add(tp)
            if limit <= 0:
                break
        return chosen


_all: weakref.WeakValueDictionary[str, MemoryStorage] = weakref.WeakValueDictionary()


def _same(name: str) -> MemoryStorage:
    return _all[name]


class _MemoryWriter(Writer):
    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        return self._storage.put_all(chunks)

    def close(self) -> None: ...


def _is_selected(queued: _Queued, selection: Selection) -> bool:
    block = queued.block
    return selection.of_blocks().takes(block.topic, block.partition, block.first, block.last)


def _is_older(age: float, bound: float | None) -> bool:
    return bound is not None and age >= bound
