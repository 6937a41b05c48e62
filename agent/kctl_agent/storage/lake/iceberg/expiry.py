"""Old snapshots of ours go with the commits of ours: each that is kept makes every commit, of everybody, slower, for
all of them are in the file of metadata that each commit writes anew.

Only metadata goes. Where others have deleted or rewritten rows after a snapshot, files of the table may be in that
alone: it is left to an engine that removes these with it (`expire_snapshots`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from kctl_agent.storage.lake.iceberg.numbers import ancestors, is_own

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["AGE_MS", "LEAST", "PROPERTIES", "chosen", "outdated", "remove_files", "unneeded_files"]

log = logging.getLogger(__name__)

AGE_MS, LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
PROPERTIES = {AGE_MS: "300000", LEAST: "100"}
"""Of a table that is made here. With a batch a second there would be 3,600 in an hour, and upon 1,000 a commit takes
0.3 s (benchmarks/README.md)."""
DEFAULTS = {AGE_MS: "432000000", LEAST: "1"}
"""Iceberg's own."""
STEP = 20
"""So many go at a time at least, for what they need is read then."""


def chosen(metadata: TableMetadata, now: float, io: FileIO) -> tuple[list[Snapshot], list[str]]:
    """The snapshots that go with a commit at `now` (Unix seconds), and the files that only they need. None where what
    they have cannot be read, such as when another commit has just removed it: this one does not fail for that."""
    expired = outdated(metadata, now)
    try:
        return expired, unneeded_files(metadata, expired, io) if expired else []
    except Exception as error:  # whatever pyiceberg raises of a file that is gone, or damaged
        log.debug("no snapshot is expired this time: %s", error)
        return [], []


def outdated(metadata: TableMetadata, now: float) -> list[Snapshot]:
    """Those that the properties of the table do not want to be kept at `now` (Unix seconds), the newest first; none
    where they are few."""
    age, least = (int(metadata.properties.get(name, DEFAULTS[name])) for name in (AGE_MS, LEAST))
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    newest = list(takewhile(_is_append, ancestors(metadata)))
    found = [
        snapshot
        for number, snapshot in enumerate(newest)
        if number >= max(least, 1)
        and snapshot.timestamp_ms < now * 1000 - age
        and is_own(snapshot)
        and snapshot.snapshot_id not in named
    ]
    return found if len(found) >= STEP else []


def _is_append(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation.value == "append"


def unneeded_files(metadata: TableMetadata, expired: Sequence[Snapshot], io: FileIO) -> list[str]:
    """Lists of manifests of these snapshots, and such manifests of theirs as a later one has merged into others. To be
    asked before they are expired. Raises what pyiceberg does where one cannot be read."""
    ids = {snapshot.snapshot_id for snapshot in expired}
    files = [snapshot.manifest_list for snapshot in expired]
    kept = [snapshot for snapshot in ancestors(metadata) if snapshot.snapshot_id not in ids]
    if len(kept) + len(ids) < len(metadata.snapshots):  # branches, or what was rolled back, may have the same ones
        return files
    # What the first one after all of these does not have, none after it has; but some may be kept between them.
    oldest, newest = _number(expired[-1]), _number(expired[0])
    first = next(_number(snapshot) for snapshot in reversed(kept) if _number(snapshot) > newest)
    needing = [snapshot for snapshot in kept if oldest < _number(snapshot) <= first]
    above = max((_number(snapshot) for snapshot in kept if _number(snapshot) < oldest), default=0)
    return files + sorted(set(_manifests(expired, above, io)) - set(_manifests(needing, above, io)))


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _manifests(snapshots: Sequence[Snapshot], above: int, io: FileIO) -> Iterator[str]:
    """Those that were added by a snapshot above this number: no older one can have them."""
    for snapshot in snapshots:
        for manifest in snapshot.manifests(io):
            if (manifest.sequence_number or 0) > above:
                yield manifest.manifest_path


def remove_files(files: Sequence[str], io: FileIO) -> None:
    for file in files:
        try:
            io.delete(file)
        except OSError as error:  # nobody needs it
            log.debug("%s was not removed: %s", file, error)
