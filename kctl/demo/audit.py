"""The audit of the demo: every produced offset must be stored exactly once."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import Binding

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.lake.storage import LakeStorage

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class Audit:
    """Counts of messages. `stored` is the sum of unhandled messages, `handled` and `dead`. `duplicated` counts the
    repeats in this sum. `lost`: missing below the stored offset, so no worker will read them again. `not_stored`:
    missing at or above the stored offset. `handled` counts each message once, and `handled_again` the repeats."""

    produced: int
    stored: int
    lost: int
    duplicated: int
    not_stored: int = 0
    handled: int = 0
    handled_again: int = 0
    dead: int = 0


def audit_table(storage: LakeStorage, owner: Binding, produced: Mapping[tuple[str, int], int]) -> Audit:
    """Audits a table. Raises StorageUnusable."""
    storage.bind(owner)
    stored_offsets = {tp: stored.next for tp, stored in storage.stored_offsets(produced).items()}
    # delta-rs reads the table, because kctl's own reader might repeat an error of kctl's writer.
    with storage.table.latest() as table:
        columns = table.to_pyarrow_table(columns=["topic", "partition", "offset"])
    rows = zip(*(columns[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return audit(rows, produced, stored_offsets=stored_offsets)


def audit(
    stored: Iterable[Place],
    produced: Mapping[tuple[str, int], int],
    handled: Iterable[Place] = (),
    dead: Iterable[Place] = (),
    stored_offsets: Mapping[tuple[str, int], int] | None = None,
) -> Audit:
    """Compares stored, handled and dead messages with the produced messages. `produced` maps each partition to its
    number of messages. Offsets begin at 0. Without `stored_offsets`, all missing messages count as lost."""
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


def places(blocks: Iterable[Block]) -> Iterator[Place]:
    """Yields the place of every message. Raises BadBlock if a block is damaged."""
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


HANDLER = "kctl.demo.audit:record"
FOLDER_VARIABLE = "KCTL_DEMO_LEDGER"
"""The environment variable that names the folder of `record`, because a handler receives only messages."""
_RECORD = struct.Struct("<qi")


def record(messages: list[Message]) -> list[bool]:
    """Appends the messages' offsets to this process's file, and acknowledges all."""
    # Unbuffered, so that the offsets survive a SIGKILL of this process.
    with Path(os.environ[FOLDER_VARIABLE], f"{os.getpid()}.ledger").open("ab", buffering=0) as ledger:
        ledger.write(b"".join(_RECORD.pack(message.offset, message.partition) for message in messages))
    return [True] * len(messages)


def handled(folder: Path, topic: str) -> Iterator[Place]:
    """Yields the place of every handled message, once for each time it was handled."""
    for path in sorted(folder.glob("*.ledger")):
        body = path.read_bytes()
        for offset, partition in _RECORD.iter_unpack(body[: len(body) // _RECORD.size * _RECORD.size]):
            yield topic, partition, offset
