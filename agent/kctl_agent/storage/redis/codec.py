"""Decodes the replies of the scripts in `lua/`."""

from collections.abc import Sequence

from kctl_agent.storage.block import Block
from kctl_agent.storage.causes import DeathCause
from kctl_agent.storage.chunk import StoredOffset, TopicPartition
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.limits import PartitionStats

DEAD_LETTER = ("tries", "error", "at", "damaged", "tp", "topic_id", "first", "last", "count", "body")


def words(*values: object) -> list[object]:
    return ["" if value is None else value for value in values]


def name_of(tp: TopicPartition) -> str:
    return f"{tp[0]}:{tp[1]}"  # a topic name contains no colon


def parted(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition(":")
    return topic, int(partition)


def stored_offset_of(tp: TopicPartition, row: Sequence[bytes | None]) -> StoredOffset | None:
    topic_id, following, version = row
    if not following:
        return None
    return StoredOffset(*tp, (topic_id or b"").decode() or None, int(following), int(version or 0))


def block_of(row: Sequence[bytes]) -> Block:
    name, topic_id, first, last, count, body = row
    topic, partition = parted(name.decode())
    return Block(topic, topic_id.decode() or None, partition, int(first), int(last), int(count), body)


def dead_letter_of(id_: str, row: Sequence[bytes]) -> DeadLetter:
    tries, error, at, damaged, *block = row
    return DeadLetter(id_, block_of(block), int(tries), error.decode(errors="replace"), int(at) / 1000, damaged == b"1")


def run_of(name: bytes) -> tuple[TopicPartition, DeathCause]:
    tp, _, cause = name.decode().partition(" ")
    error_class, _, line = cause.rpartition("\t")
    return parted(tp), DeathCause(error_class, line)


def partitions_of(counts: Sequence[bytes], ages: Sequence[bytes]) -> tuple[PartitionStats, ...]:
    found: dict[TopicPartition, PartitionStats] = {}
    oldest = dict(zip(ages[::2], ages[1::2], strict=True))
    for label, value in zip(counts[::2], counts[1::2], strict=True):
        name, state = label.decode().split(" ")
        tp, number = parted(name), int(value)
        if number:
            size, messages = (number, 0) if state == "bytes" else (0, number)
            before = found.get(tp, PartitionStats(*tp))
            found[tp] = before.plus("pending" if state == "bytes" else state, messages, size)
    for name_, age in oldest.items():
        tp = parted(name_.decode())
        if tp in found:
            found[tp] = found[tp].plus("pending", 0, 0, int(age) / 1000)
    return tuple(found[tp] for tp in sorted(found))
