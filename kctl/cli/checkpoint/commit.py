"""`kctl checkpoint commit`"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl.checkpoints import commits
from kctl.checkpoints.checkpoint import Checkpoint, read
from kctl.checkpoints.places import place
from kctl.cli.checkpoint.show import instant
from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.table import clean
from kctl.errors import CheckpointUnusable, IncompleteAnswer, KctlError
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.reset import OffsetChange, apply

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

_COLUMNS = ("topic", "partition", "old", "new", "difference", "repeated")
_EVERYTHING_SECONDS = 24 * 3600.0
"""Kafka drops an offset after offsets.retention.minutes, seven days by default."""


def commit(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    folder = place(options.uri)
    if not options.follow:
        return _commit(options, env, commits.read_still(folder, options.interval))
    with _until_stopped() as stop:
        return _follow(options, env, folder, stop)


def _commit(options: argparse.Namespace, env: Mapping[str, str], checkpoint: Checkpoint) -> int:
    """Shows the changes, asks, and commits all. Raises CheckpointUnusable if a partition cannot be committed."""
    with connected(options, env) as connection:
        changes = _planned(options, connection, checkpoint)
        if any(each.error for each in changes):
            raise CheckpointUnusable(f"nothing was changed: {_summary(checkpoint, changes, options.group)}")
        again = [commits.repeated(checkpoint, each) for each in changes]

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
    """Commits everything after each batch and once a day. Waits out outages of brokers and storage. Raises KctlError if
    waiting does not help."""
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
            if options.dry_run or not (error.retriable or (has_begun and isinstance(error, CheckpointUnusable))):
                raise
            line = f"{error}; retrying every {options.interval:g} s"
        if line not in ("", reported):
            sys.stderr.write(f"{instant(time.time())} {clean(line)}\n")
            sys.stderr.flush()
            reported = line
        if stop.wait(options.interval):
            return 0


def _planned(options: argparse.Namespace, connection: ClusterConnection, checkpoint: Checkpoint) -> list[OffsetChange]:
    only = options.topic or ()
    return commits.plan(connection, checkpoint, options.group, only, goes_back=options.force, is_trusted=options.trust)


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
