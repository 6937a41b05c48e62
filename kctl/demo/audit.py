"""The audit of the demo: every produced offset must be stored exactly once. `Ledger` is its handler, which records and
acknowledges each message."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.claim import DeadLetter

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.lake.storage import LakeStorage

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Message counts. `stored`: in the storage, handled, or dead letters; `lost`: found nowhere; `not_stored`: above
    the stored offset; `duplicated`: twice in the storage, or there although handled. `handled` counts each once,
    `handled_again` the repeats, which only the death of a sinker excuses."""

    produced: int
    stored: int
    lost: int
    duplicated: int
    not_stored: int = 0
    handled: int = 0
    handled_again: int = 0
    dead: int = 0


def audit(
    blocks: Iterable[Block],
    produced: Mapping[tuple[str, int], int],
    handled: Iterable[Place] = (),
    dead: Iterable[DeadLetter] = (),
    stored_offsets: Mapping[tuple[str, int], int] | None = None,
) -> Audit:
    """`produced`: messages per partition, from offset 0. `stored_offsets`: up to where each partition should be stored;
    by default all of it. Decodes every record, so a damaged block raises BadBlock."""
    dead_places = _places(dead_letter.block for dead_letter in dead)
    return _audit_places(_places(blocks), produced, handled, dead_places, stored_offsets)


def audit_table(storage: LakeStorage, owner: Binding, produced: Mapping[tuple[str, int], int]) -> Audit:
    """Reads the table with delta-rs, which wrote none of its files. Raises StorageUnusable."""
    storage.bind(owner)
    stored_offsets = {tp: stored.next for tp, stored in storage.stored_offsets(produced).items()}
    with storage.table.latest() as table:
        columns = table.to_pyarrow_table(columns=["topic", "partition", "offset"])
    rows = zip(*(columns[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return _audit_places(rows, produced, stored_offsets=stored_offsets)


def _audit_places(
    stored: Iterable[Place],
    produced: Mapping[tuple[str, int], int],
    handled: Iterable[Place] = (),
    dead: Iterable[Place] = (),
    stored_offsets: Mapping[tuple[str, int], int] | None = None,
) -> Audit:
    seen = _Seen(produced)
    times_handled = [seen.add(place) for place in handled]
    waiting = [seen.add(place) for place in stored]
    dead_letters = [seen.add(place) for place in dead]
    once = times_handled.count(True)
    duplicated = waiting.count(False) + dead_letters.count(False)
    missing = seen.missing(produced)
    lost = missing if stored_offsets is None else seen.missing({tp: stored_offsets.get(tp, 0) for tp in produced})
    return Audit(
        produced=sum(produced.values()),
        stored=once + len(waiting) + len(dead_letters),
        lost=lost,
        duplicated=duplicated,
        not_stored=missing - lost,
        handled=once,
        handled_again=len(times_handled) - once,
        dead=len(dead_letters),
    )


def _places(blocks: Iterable[Block]) -> Iterator[Place]:
    for block in blocks:
        for record in block.messages():
            yield block.topic, block.partition, record.offset


class _Seen:
    def __init__(self, produced: Mapping[tuple[str, int], int]) -> None:
        self._seen = {key: bytearray(count) for key, count in produced.items()}

    def add(self, place: Place) -> bool:
        topic, partition, offset = place
        offsets = self._seen.setdefault((topic, partition), bytearray())
        if offset >= len(offsets):
            offsets.extend(bytes(offset + 1 - len(offsets)))
        is_new = not offsets[offset]
        offsets[offset] = 1
        return is_new

    def missing(self, ends: Mapping[tuple[str, int], int]) -> int:
        return sum(self._seen[key][:end].count(0) for key, end in ends.items())


HANDLER = "kctl.demo.audit:Ledger"
FOLDER_VARIABLE = "KCTL_DEMO_LEDGER"
"""A variable, because a handler receives only messages."""
_RECORD = struct.Struct("<qi")


class Ledger:
    """Writes one file per process, and once per call, so that the records of a killed process survive."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def handle(self, messages: list[Message]) -> list[bool]:
        if self._file is None:
            path = Path(os.environ[FOLDER_VARIABLE], f"{os.getpid()}.ledger")
            self._file = path.open("ab", buffering=0)
        self._file.write(b"".join(_RECORD.pack(message.offset, message.partition) for message in messages))
        return [True] * len(messages)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def handled(folder: Path, topic: str) -> Iterator[Place]:
    """Yields every message as often as it was handled."""
    for path in sorted(folder.glob("*.ledger")):
        body = path.read_bytes()
        for offset, partition in _RECORD.iter_unpack(body[: len(body) // _RECORD.size * _RECORD.size]):
            yield topic, partition, offset
