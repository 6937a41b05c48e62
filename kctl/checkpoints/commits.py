"""Commits what a query has processed to a consumer group without members."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from kctl.checkpoints.checkpoint import Checkpoint, read
from kctl.checkpoints.logs import LOOKS_RECREATED, Row, read_rows
from kctl.errors import CheckpointUnusable, KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import Committed, committed
from kctl.kafka.reset import OffsetChange, refuse_active

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder


def read_still(folder: Folder, seconds: float) -> Checkpoint:
    """Reads a checkpoint twice. Raises CheckpointUnusable if it has changed in between."""
    before = read(folder)
    threading.Event().wait(seconds)
    after = read(folder)
    if (before.planned, before.committed) != (after.planned, after.committed):
        raise CheckpointUnusable(
            f"{folder} still moves: within {seconds:g} s it came from batch {before.planned} planned and "
            f"{before.committed} committed to {after.planned} and {after.committed}; stop the job, or use --follow"
        )
    return after


def plan(
    connection: ClusterConnection,
    checkpoint: Checkpoint,
    group: str,
    only: Collection[str] = (),
    *,
    goes_back: bool,
    is_trusted: bool,
) -> list[OffsetChange]:
    """Plans the commit of each partition; changes nothing.

    With `goes_back`, also commits offsets below the group's; with `is_trusted`, those of a damaged checkpoint or of a
    topic that seems recreated. Raises GroupActive, CheckpointUnusable, KctlError.
    """
    rows = read_rows(connection, checkpoint, only)
    if not rows or (checkpoint.would_start is False and not is_trusted):
        why = "; ".join(each.text for each in checkpoint.findings) or "no Kafka source has read anything yet"
        trust = "; --trust commits what it holds" if rows else ""
        raise CheckpointUnusable(f"{checkpoint.uri}: what the query has processed is not known: {why}{trust}")
    refuse_active(connection, group)
    known = committed(connection, {group: [(row.topic, row.partition) for row in rows]})[group]
    if isinstance(known, KctlError):
        raise known
    return [
        _change(row, known.get((row.topic, row.partition), Committed(None)), goes_back=goes_back, is_trusted=is_trusted)
        for row in rows
    ]


def repeated(checkpoint: Checkpoint, change: OffsetChange) -> str | None:
    """Returns the offsets of a planned, uncommitted batch that will be read again, as `1200-1235`."""
    end = (checkpoint.repeated or {}).get((change.topic, change.partition))
    return None if end is None or change.new is None or end <= change.new else f"{change.new}-{end - 1}"


def _change(row: Row, known: Committed, *, goes_back: bool, is_trusted: bool) -> OffsetChange:
    kind, old, error = row.verdict.split()[0], known.offset, row.error or known.error
    new = row.log_start if row.next_offset is None or kind == "lost" else row.next_offset
    if error is None and kind == "gone":
        error = "the partition is gone"
    elif error is None and kind == "beyond":
        error = f"offset {new} is beyond the end of the log: the topic was recreated or truncated"
    elif error is None and not is_trusted and row.verdict == LOOKS_RECREATED:
        error = "the topic looks recreated: if only its messages have times in the future, --trust commits the offset"
    elif error is None and not goes_back and old is not None and new is not None and new < old:
        error = f"the group is at {old} already: --force moves it back to {new}"
    return OffsetChange(row.topic, row.partition, old, None if error else new, error)
