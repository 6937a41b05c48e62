"""Messages to put, and short ways to ask for their outcome."""

from collections.abc import Iterable, Sequence

import numpy as np

from kctl_agent.message import Message
from kctl_agent.storage.base import OffsetStore, Storage
from kctl_agent.storage.block import BinaryColumn, Columns
from kctl_agent.storage.chunk import Chunk, Put, StoredOffset
from kctl_agent.storage.claim import Claim, Settled

TOPIC_ID = "f3a1b2c3-d4e5-46f7-98a9-0b1c2d3e4f5a"
OTHER_TOPIC_ID = "00000000-0000-0000-ffff-ffffffffffff"  # 128 bits, as Kafka gives them (KIP-516)


def chunk(
    start: int,
    end: int,
    at: Iterable[int] | None = None,
    topic_id: str | None = TOPIC_ID,
    topic: str = "t",
    partition: int = 0,
    version: int = 1,
) -> Chunk:
    """Offsets from `start` to before `end`, or those of `at`. A message has its offset as value: b"0007"."""
    found = np.array(list(range(start, end) if at is None else at), np.int64)
    values = BinaryColumn(np.full(len(found), 4, np.int32), b"".join(b"%04d" % offset for offset in found))
    return Chunk(topic, partition, topic_id, start, end, version, Columns(found, found * 10, None, values, None))


def put(storage: Storage, *chunks: Chunk) -> list[Put]:
    with storage.writer() as writer:
        return [writer.put(one) for one in chunks]


def fill(storage: Storage, count: int, partition: int = 0, topic: str = "t") -> None:
    """Puts `count` messages, from offset 0 of an empty partition."""
    storage.init_offsets([StoredOffset(topic, partition, TOPIC_ID, 0)])
    put(storage, chunk(0, count, topic=topic, partition=partition))


def stored(storage: Storage) -> list[int]:
    return [record.offset for block in storage.blocks() for record in block.messages()]


def next_offset(storage: OffsetStore) -> int:
    return storage.stored_offsets([("t", 0)])[("t", 0)].next


def offsets(claims: Iterable[Claim]) -> list[int]:
    return [message.offset for claim in claims for message in claim.messages]


def everything(storage: Storage, owner: str = "a") -> list[Message]:
    """Claims and acknowledges all messages that can be claimed now."""
    found: list[Message] = []
    while claims := storage.claim(owner, 1000, 60.0):
        for claim in claims:
            assert not storage.settle(claim, [True] * len(claim.messages)).is_lost
            found += claim.messages
    return found


def settle_dead(storage: Storage, claim: Claim, error: str = "no") -> Settled:
    count = len(claim.messages)
    return storage.settle(claim, [False] * count, dead=dict.fromkeys(range(count), error))


def total(storage: Storage) -> tuple[int, int, int, int]:
    """Pending, processing, delayed, dead. Checks that the partitions have the same sums."""
    stats = storage.stats()
    names: Sequence[str] = ("pending", "processing", "delayed", "dead")
    assert [getattr(stats, name) for name in names] == [
        sum(getattr(partition, name) for partition in stats.partitions) for name in names
    ]
    return stats.pending, stats.processing, stats.delayed, stats.dead


def is_empty(storage: Storage) -> bool:
    """True even if there are dead letters."""
    stats = storage.stats()
    return stats.pending == stats.processing == stats.delayed == 0
