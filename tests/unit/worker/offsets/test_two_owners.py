"""Overlapping owners of one partition: each may freeze between any two steps of a start or a batch, and continues after
others have read for a while.

A seeded walk over the steps, in memory and in a file. The storage and `decide` are real. The group, which fences
commits by generation as Kafka does, and the order of a worker's steps (`QueryStart`, `Pipeline`) are simulated.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.worker.offsets.commit_metadata import CommitNote, StorageId, parse
from kctl_agent.worker.offsets.positions import Found, decide
from tests.conformance.given import chunk, stored
from tests.scratch_storage import ScratchStorage

TP = ("t", 0)
LOG = [offset for offset in range(120) if offset % 7 != 3]  # offsets that compaction has left
LOG_END = 120
HERE = StorageId("s", "here")


class Fenced(Exception):
    """The group has continued without this owner."""


@dataclass
class Group:
    generation: int = 0
    committed: tuple[int, str] | None = None

    def commit(self, generation: int, offset: int) -> None:
        if generation != self.generation:
            raise Fenced
        self.committed = (offset, CommitNote(HERE, "A").format())


@dataclass
class World:
    storage: Storage
    group: Group = field(default_factory=Group)
    expected: Counter[int] = field(default_factory=lambda: Counter(LOG))  # how often each message must be stored
    resets: int = 0
    honoured: set[int] = field(default_factory=lambda: {0})  # resets for which an owner has set the stored offset

    def join(self, chance: random.Random) -> Iterator[None]:
        self.group.generation += 1
        return self._live(self.group.generation, chance)

    def _live(self, generation: int, chance: random.Random) -> Iterator[None]:
        try:
            while True:
                try:
                    yield from self._read(generation, chance)
                except StorageError:
                    yield  # the query ends and the worker restarts
        except Fenced:
            return

    def _read(self, generation: int, chance: random.Random) -> Iterator[None]:
        stored_offsets = self.storage.stored_offsets([TP])
        yield
        offset, metadata = self.group.committed or (None, "")
        reset = self.resets
        yield
        found = Found("t", 0, "A", offset, 0, LOG_END, parse(metadata))
        start = decide(found, stored_offsets.get(TP), 0, HERE)
        yield
        if start.stored_offset is not None:
            self._place(start.stored_offset, stored_offsets)
            if start.moved:
                assert reset not in self.honoured, f"honoured once more: {start.moved}"
                self.honoured.add(reset)
            yield
        if start.must_commit:
            self.group.commit(generation, start.offset)
            yield
        version = (stored_offsets[TP].version if stored_offsets else 0) + (start.stored_offset is not None)
        position = start.offset
        while True:
            end = min(position + chance.randint(1, 30), LOG_END)
            yield from self._put(position, end, version, chance)
            self.group.commit(generation, end)
            yield
            position = end

    def _place(self, stored: StoredOffset, seen: dict[tuple[str, int], StoredOffset]) -> None:
        self.storage.init_offsets([stored], seen)
        before = seen[TP].next if seen else 0
        for offset in LOG:
            self.expected[offset] += (stored.next <= offset < before) - (before <= offset < stored.next)

    def _put(self, position: int, end: int, version: int, chance: random.Random) -> Iterator[None]:
        begin = position
        messages = [offset for offset in LOG if position <= offset < end]
        with self.storage.writer() as writer:
            while messages:
                size = chance.randint(1, len(messages))
                part, messages = messages[:size], messages[size:]
                writer.put(chunk(begin, part[-1] + 1, part, version=version))
                begin = part[-1] + 1
                yield
        if begin < end:
            self.storage.advance_offsets([Advance("t", 0, version, begin, end)])
            yield


def walk(storage: Storage, seed: int, resets: bool) -> World:
    """Runs up to four owners at once, one of them in the group, and then one more until everything is read."""
    world, chance = World(storage), random.Random(seed)
    owners: list[Iterator[None]] = []
    for _ in range(chance.randint(20, 400)):
        dice = chance.random()
        if not owners or dice < 0.03:
            owners = [*owners[-3:], world.join(chance)]
        elif resets and dice < 0.06 and world.group.committed:
            world.group.generation += 1  # the group has no member; the frozen owner does not know yet
            world.group.committed = (chance.randint(0, LOG_END), "")
            world.resets += 1
        elif dice < 0.08:
            owners.remove(chance.choice(owners))  # killed
        else:
            owner = owners[-1] if chance.random() < 0.7 else chance.choice(owners)
            if next(owner, "ended") == "ended":
                owners.remove(owner)
    last = world.join(chance)
    while (world.group.committed or (0, ""))[0] < LOG_END or storage.stored_offsets([TP])[TP].next < LOG_END:
        next(last)
        if owners and chance.random() < 0.3:
            next(chance.choice(owners), None)
    for owner in owners:  # including one that was frozen all the time
        for _ in range(20):
            next(owner, None)
    return world


@pytest.mark.shows("owners frozen at any step of a query or batch, 50 runs: 0 lost, 0 twice")
@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(25, 130))])
@pytest.mark.parametrize("resets", [False, True], ids=["alone", "resets"])
def test_owners_that_are_frozen_at_any_step_lose_nothing_and_store_nothing_twice(seed: int, resets: bool) -> None:
    with closing(ScratchStorage(block_messages=3)) as storage:
        world = walk(storage, seed, resets)

        assert Counter(stored(storage)) == +world.expected
    assert resets or world.expected == Counter(LOG)
