"""`kctl checkpoint commit`: commits a query's offsets to a group."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl.checkpoints.checkpoint import Checkpoint, place, read
from kctl.checkpoints.logs import LOOKS_RECREATED, Row, read_rows
from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.table import clean
from kctl.errors import CheckpointUnusable, IncompleteAnswer, KctlError
from kctl.fields import moment
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.reasons import or_raise
from kctl.kafka.offsets import Committed, committed
from kctl.kafka.reset import OffsetChange, apply, refuse_active

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

_COLUMNS = ("topic", "partition", "old", "new", "difference", "repeated")
_EVERYTHING_SECONDS = 24 * 3600.0
"""Kafka drops an offset after offsets.retention.minutes, seven days by default."""


def commit(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    folder = place(options.uri)
    if not options.follow:
        return _commit(options, env, _read_still(folder, options.interval))
    with _until_stopped() as stop:
        return _follow(options, env, folder, stop)


def _commit(options: argparse.Namespace, env: Mapping[str, str], checkpoint: Checkpoint) -> int:
    with connected(options, env) as connection:
        changes = _planned(options, connection, checkpoint)
        if any(each.error for each in changes):
            raise CheckpointUnusable(f"nothing was changed: {_summary(checkpoint, changes, options.group)}")
        again = [_repeated(checkpoint, each) for each in changes]

        def make() -> str:
            nonlocal changes
            changes = apply(connection, options.group, changes)
            return _summary(checkpoint, changes, options.group)

        def shown(*, executed: bool) -> None:
            rows = [
                each._asdict() | {"difference": each.difference, "repeated": count}
                for each, count in zip(changes, again, strict=True)
            ]
            batches = {"committed_batch": checkpoint.committed, "planned_batch": checkpoint.planned}
            show(options, _COLUMNS, rows, (), group=options.group, uri=checkpoint.uri, executed=executed, **batches)

        offsets = [[each.topic, each.partition, each.old, each.new] for each in changes]
        params = {"group": options.group, "checkpoint": checkpoint.uri, "offsets": offsets}
        question = f"Commit these offsets to group {options.group}?"
        return change(options, env, connection, "checkpoint-commit", question, shown, make, **params)


def _follow(options: argparse.Namespace, env: Mapping[str, str], folder: Folder, stop: threading.Event) -> int:
    last, due, reported, has_begun = None, 0.0, "", False
    while True:
        line = ""
        try:
            checkpoint = read(folder, with_state=not has_begun)
            is_due = checkpoint.committed != last or time.monotonic() >= due
            if not has_begun:
                code = _commit(options, env, checkpoint)
                if code or options.dry_run:
                    return code
            elif is_due:
                with connected(options, env) as connection:
                    changes = apply(connection, options.group, _planned(options, connection, checkpoint))
                line = _summary(checkpoint, changes, options.group)
                is_due = not any(each.error for each in changes)
            if is_due:
                has_begun, last, due = True, checkpoint.committed, time.monotonic() + _EVERYTHING_SECONDS
        except KctlError as error:
            has_begun = has_begun or isinstance(error, IncompleteAnswer)
            # Brokers and storage recover from an outage. A checkpoint that was usable before may become so again.
            if options.dry_run or not (error.retriable or (has_begun and isinstance(error, CheckpointUnusable))):
                raise
            line = f"{error}; retrying every {options.interval:g} s"
        if line not in ("", reported):
            sys.stderr.write(f"{moment(time.time())} {clean(line)}\n")
            sys.stderr.flush()
            reported = line
        if stop.wait(options.interval):
            return 0


def _summary(checkpoint: Checkpoint, changes: list[OffsetChange], group: str) -> str:
    failed = [each for each in changes if each.error is not None]
    text = f"batch {checkpoint.committed}: {len(changes) - len(failed)} of {len(changes)} offsets for group {group}"
    return text + (f", not {failed[0].topic}-{failed[0].partition}: {failed[0].error}" if failed else "")


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _read_still(folder: Folder, seconds: float) -> Checkpoint:
    before = read(folder)
    threading.Event().wait(seconds)
    after = read(folder)
    if (before.planned, before.committed) != (after.planned, after.committed):
        raise CheckpointUnusable(
            f"{folder} still moves: within {seconds:g} s it came from batch {before.planned} planned and "
            f"{before.committed} committed to {after.planned} and {after.committed}; stop the job, or use --follow"
        )
    return after


def _planned(options: argparse.Namespace, connection: ClusterConnection, checkpoint: Checkpoint) -> list[OffsetChange]:
    rows, group = read_rows(connection, checkpoint, options.topic or ()), options.group
    if not rows or (checkpoint.would_start is False and not options.trust):
        why = "; ".join(each.text for each in checkpoint.findings) or "no Kafka source has read anything yet"
        trust = "; --trust commits what it holds" if rows else ""
        raise CheckpointUnusable(f"{checkpoint.uri}: what the query has processed is not known: {why}{trust}")
    refuse_active(connection, group)
    known = or_raise(committed(connection, {group: [(row.topic, row.partition) for row in rows]})[group])
    return [_change(options, row, known.get((row.topic, row.partition), Committed(None))) for row in rows]


def _repeated(checkpoint: Checkpoint, change: OffsetChange) -> str | None:
    # At a restart, Spark repeats the batch that is planned but not committed.
    end = (checkpoint.repeated or {}).get((change.topic, change.partition))
    return None if end is None or change.new is None or end <= change.new else f"{change.new}-{end - 1}"


def _change(options: argparse.Namespace, row: Row, known: Committed) -> OffsetChange:
    kind, old, error = row.verdict.split()[0], known.offset, row.error or known.error
    new = row.log_start if row.next_offset is None or kind == "lost" else row.next_offset
    if error is None and kind == "gone":
        error = "the partition is gone"
    elif error is None and kind == "beyond":
        error = f"offset {new} is beyond the end of the log: the topic was recreated or truncated"
    elif error is None and not options.trust and row.verdict == LOOKS_RECREATED:
        error = "the topic looks recreated: if only its messages have times in the future, --trust commits the offset"
    elif error is None and not options.force and old is not None and new is not None and new < old:
        error = f"the group is at {old} already: --force moves it back to {new}"
    return OffsetChange(row.topic, row.partition, old, None if error else new, error)
