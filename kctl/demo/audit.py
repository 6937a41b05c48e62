"""Counts what the storage holds against what was produced: every offset once, none missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kctl_agent.storage.block import Block

__all__ = ["Audit", "audit"]


@dataclass(frozen=True, slots=True)
class Audit:
    """`lost` were produced and are not stored; `duplicated` are stored more than once."""

    produced: int
    stored: int
    lost: int
    duplicated: int


def audit(blocks: Iterable[Block], produced: Mapping[tuple[str, int], int]) -> Audit:
    """Compare offset by offset. `produced` is the number of messages of each partition, whose offsets begin at 0.

    Every record is decoded, so a damaged block raises BadBlock.
    """
    seen: dict[tuple[str, int], bytearray] = {key: bytearray(count) for key, count in produced.items()}
    stored = duplicated = 0
    for block in blocks:
        offsets = seen.setdefault((block.topic, block.partition), bytearray())
        for record in block.records():
            if record.offset >= len(offsets):
                offsets.extend(bytes(record.offset + 1 - len(offsets)))
            duplicated += offsets[record.offset]
            offsets[record.offset] = 1
            stored += 1
    lost = sum(seen[key][:count].count(0) for key, count in produced.items())
    return Audit(sum(produced.values()), stored, lost, duplicated)
