"""Stored offsets in an Iceberg table: numbers by name (`lake.offsets`), as an engine keeps whatever a commit writes.

Iceberg has no place of its own for them, and each of the two that it has lacks something:

- The summary of a snapshot goes where the snapshot goes: after a rollback of the table the numbers are those of the
  rows that are there. But an expiry of snapshots, by whatever engine, removes it, as soon as others have committed
  after it.
- A property of the table survives every expiry, and stays what it was when the table is rolled back.

So each commit writes all numbers of the table to both. The newest snapshot of ours among the ancestors of `main` has
them. Where there is none, it was expired, and the properties have them: unless they are newer than an ancestor that is
there, for then it is not expired but rolled back, and what was before is not known. Pure.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["FOLDER", "SEQUENCE_NUMBER", "added_by", "ancestors", "is_own", "pack", "read_numbers", "unpack"]

PREFIX = "kctl."
FOLDER = "kctl.folder"
"""In the summary of each snapshot of ours: the folder of its files in the table's, or nothing."""
SEQUENCE_NUMBER = "kctl.sequence-number"
"""A property: that of the last snapshot of ours."""
OFFSETS = "kctl.offsets/"
OTHERS = "kctl.numbers"
NEXT = "next"
_OF_PARTITION = re.compile(r"kctl/(?P<topic>[^/]+/[^/]+/[^/]+)/(?P<partition>\d+)(/(?P<kind>.+))?")

_ByKind = dict[str, dict[str, int]]


def pack(numbers: Mapping[str, int]) -> dict[str, str]:
    """As properties: one for each cluster, group and topic, short, because each snapshot that is kept repeats them.
    What all partitions have the same of, such as the id of the topic, is there once."""
    topics: defaultdict[str, _ByKind] = defaultdict(lambda: defaultdict(dict))
    others: dict[str, int] = {}
    for name, number in sorted(numbers.items()):
        if (found := _OF_PARTITION.fullmatch(name)) is None:
            others[name] = number
        else:
            topics[found["topic"]][found["kind"] or NEXT][found["partition"]] = number
    packed = {f"{OFFSETS}{topic}": _text(_shortened(kinds)) for topic, kinds in topics.items()}
    return packed | ({OTHERS: _text(others)} if others else {})


def unpack(properties: Mapping[str, str]) -> dict[str, int]:
    """Raises ValueError: somebody has changed them."""
    numbers: dict[str, int] = {}
    try:
        for name, text in properties.items():
            if name == OTHERS:
                numbers |= json.loads(text)
            elif name.startswith(OFFSETS):
                numbers |= _numbers(f"kctl/{name.removeprefix(OFFSETS)}", json.loads(text))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the property {name} is none of kctl's") from error
    return numbers


def _shortened(kinds: _ByKind) -> dict[str, dict[str, int] | int]:
    partitions = kinds.get(NEXT, {}).keys()

    def short(kind: str, of: dict[str, int]) -> dict[str, int] | int:
        is_one = kind != NEXT and of.keys() == partitions and len(set(of.values())) == 1
        return next(iter(of.values())) if is_one else of

    return {kind: short(kind, of) for kind, of in kinds.items()}


def _numbers(topic: str, kinds: Mapping[str, Mapping[str, int] | int]) -> Iterator[tuple[str, int]]:
    for kind, of in kinds.items():
        each = dict.fromkeys(kinds[NEXT], of) if isinstance(of, int) else of  # type: ignore[arg-type]
        for partition, number in each.items():
            yield f"{topic}/{partition}{'' if kind == NEXT else f'/{kind}'}", int(number)


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def ancestors(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The snapshots that `main` consists of, the newest first, as far as they are there."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current = metadata.current_snapshot()
    while current is not None:
        yield current
        current = None if current.parent_snapshot_id is None else by_id.get(current.parent_snapshot_id)


def is_own(snapshot: Snapshot) -> bool:
    return FOLDER in _summary(snapshot)


def read_numbers(metadata: TableMetadata) -> dict[str, int]:
    """Raises ValueError: somebody has changed them."""
    oldest: Snapshot | None = None
    for snapshot in ancestors(metadata):
        if is_own(snapshot):
            return unpack(_summary(snapshot))
        oldest = snapshot
    last = metadata.properties.get(SEQUENCE_NUMBER)
    if last is None or (oldest is not None and int(last) >= (oldest.sequence_number or 0)):
        return {}
    return unpack(metadata.properties)


def added_by(metadata: TableMetadata, folder: str, sequence_numbers: range) -> bool | None:
    """Whether a snapshot with one of these numbers has added the files of this folder; None: some are expired."""
    seen: set[int] = set()
    for snapshot in metadata.snapshots:
        if snapshot.sequence_number in sequence_numbers:
            seen.add(snapshot.snapshot_id)
            if _summary(snapshot).get(FOLDER) == folder:
                return True
    return False if len(seen) == len(sequence_numbers) else None


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}
