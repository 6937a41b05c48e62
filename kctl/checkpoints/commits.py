"""Commits what a query has processed to a consumer group without members."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from kctl.checkpoints.checkpoint import Checkpoint, read
from kctl.checkpoints.logs import Row, read_rows
from kctl.errors import CheckpointUnusable, KctlError
from kctl.kafka import reset
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import Committed, committed
from kctl.kafka.reset import OffsetChange

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder


class Commit(NamedTuple):
    """A change of the group's offset, and how many offsets of a batch that was planned and not committed are read
    again."""

    change: OffsetChange
    repeated: int | None


def read_still(folder: Folder, seconds: float) -> Checkpoint:
    """Reads a checkpoint twice, so long apart. Raises CheckpointUnusable: a batch was planned or committed between."""
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
    connection: ClusterConnection, checkpoint: Checkpoint, group: str, only: Collection[str] = (), *, is_forced: bool
) -> list[Commit]:
    """Plans what is committed of each partition; nothing is changed. Raises GroupActive: the group has members;
    CheckpointUnusable: what was processed is not known; KctlError: the brokers do not answer."""
    rows = read_rows(connection, checkpoint, only)
    if not rows:
        why = "; ".join(each.text for each in checkpoint.findings) or "no Kafka source has read anything yet"
        raise CheckpointUnusable(f"{checkpoint.uri}: what the query has processed is not known: {why}")
    reset.refuse_active(connection, group)
    known = committed(connection, {group: [(row.topic, row.partition) for row in rows]})[group]
    if isinstance(known, KctlError):
        raise known
    return [
        Commit(
            _change(row, known.get((row.topic, row.partition), Committed(None)), is_forced=is_forced),
            _repeated(row, checkpoint),
        )
        for row in rows
    ]


def apply(connection: ClusterConnection, group: str, commits: Collection[Commit]) -> list[Commit]:
    """Commits a plan, but for what has an error; each comes back with the coordinator's, if there was one. Raises
    GroupActive: a member has joined meanwhile; KctlError: the coordinator did not answer."""
    changes = reset.apply(connection, group, [each.change for each in commits])
    return [each._replace(change=made) for each, made in zip(commits, changes, strict=True)]


def _change(row: Row, known: Committed, *, is_forced: bool) -> OffsetChange:
    kind, old = row.verdict.split()[0], known.offset
    error = row.error or known.error
    new = row.log_start if row.next_offset is None or kind == "lost" else row.next_offset
    if error is None and kind == "gone":
        error = "the partition is gone"
    elif error is None and kind in ("beyond", "recreated") and not is_forced:
        error = f"{row.verdict}: the offset belongs to a topic that is gone; --force commits it"
    elif error is None and old is not None and new is not None and new < old and not is_forced:
        error = f"the group is at {old} already: --force moves it back to {new}"
    return OffsetChange(row.topic, row.partition, old, None if error else new, error)


def _repeated(row: Row, checkpoint: Checkpoint) -> int | None:
    if checkpoint.repeated is None:
        return 0
    end = checkpoint.repeated.get((row.topic, row.partition))
    begin = row.log_start if row.next_offset is None else row.next_offset
    return None if end is None or begin is None else max(end - begin, 0)
