"""Decodes log offsets from the bytes of ListOffsets responses. Pure. Encoding: KIP-482."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct

from kctl.kafka.client.layout import Partition
from kctl.kafka.protocol.raw import behind_tags, count_of, text_of

LIST_VERSIONS = range(6, 12)  # versions with the flexible encoding

_LISTED_BYTES = 27
"""An entry: partition int32, error code int16, timestamp int64, offset int64, leader epoch int32, no tags."""
_LISTED_ONE = Struct(">ihqqi")


class PartitionKeys:
    """Keeps (topic, partition) tuples for the next response, which usually lists the same partitions."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], list[Partition]]] = {}

    def of(self, topic: str, partitions: tuple[int, ...]) -> list[Partition]:
        known = self._known.get(topic)
        if known is None or known[0] != partitions:
            known = self._known[topic] = partitions, [(topic, number) for number in partitions]
        return known[1]


def listed(body: bytes, keys: PartitionKeys) -> Iterator[tuple[Sequence[Partition], Sequence[int], Sequence[int]]]:
    """Yields each topic's partitions, offsets and error codes. A missing offset is -1. Raises one of `UNREADABLE`."""
    count, at = count_of(body, 4)
    for _ in range(count):
        topic, at = text_of(body, at)
        partitions, at = count_of(body, at)
        end = at + _LISTED_BYTES * partitions
        block = body[at:end]
        # Without tagged fields all entries have the same length, so they are unpacked at once.
        if len(block) == end - at and block[26::_LISTED_BYTES] == bytes(partitions):
            values = _block("ihqqix", partitions).unpack(block)
            at = end
        else:
            entries: list[int] = []
            for _ in range(partitions):
                entries += _LISTED_ONE.unpack_from(body, at)
                at = behind_tags(body, at + _LISTED_ONE.size)
            values = tuple(entries)
        yield keys.of(topic, values[0::5]), values[3::5], values[1::5]
        at = behind_tags(body, at)


@lru_cache(1024)
def _block(entry: str, count: int) -> Struct:
    return Struct(">" + entry * count)
