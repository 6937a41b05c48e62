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

from kctl.checkpoints.checkpoint import Checkpoint, read
from kctl.checkpoints.places import place
from kctl.cli.checkpoint.show import instant
from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.cli.table import clean
from kctl.errors import CheckpointUnusable, KctlError

if TYPE_CHECKING:
    from kctl.kafka.reset import OffsetChange
    from kctl_agent.storage.lake.folder.base import Folder

_COLUMNS = ("topic", "partition", "old", "new", "difference", "repeated")
_EVERYTHING_SECONDS = 24 * 3600.0
"""Kafka forgets an offset after offsets.retention.minutes, seven days by default."""


def commit(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    folder = place(options.uri)
    if not options.follow:
        from kctl.checkpoints.commits import read_still

        return _commit(options, env, read_still(folder, options.interval))
    with _until_stopped() as stop:
        checkpoint = read(folder)
        code = _commit(options, env, checkpoint)
        if code == 0 and not options.dry_run:
            _follow(options, env, folder, stop, checkpoint.committed)
    return code


def _commit(options: argparse.Namespace, env: Mapping[str, str], checkpoint: Checkpoint) -> int:
    """Shows what would be committed, has it confirmed, and commits all of it. Raises CheckpointUnusable: a partition
    cannot be committed, so nothing is."""
    with connected(options, env) as connection:
        from kctl.checkpoints.commits import plan, repeated
        from kctl.kafka.reset import apply

        changes = plan(connection, checkpoint, options.group, options.topic or (), **_permitted(options))
        if any(each.error for each in changes):
            raise CheckpointUnusable(f"nothing was changed: {_summary(checkpoint, changes, options.group)}")
        again = [repeated(checkpoint, each) for each in changes]

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


def _follow(
    options: argparse.Namespace, env: Mapping[str, str], folder: Folder, stop: threading.Event, last: int | None
) -> None:
    """Commits everything whenever a batch was committed, and once a day. Outages of brokers and storage are waited out.
    Raises KctlError: what waiting does not cure, such as a member in the group."""
    from kctl.checkpoints.commits import plan
    from kctl.kafka.reset import apply

    due, reported = time.monotonic() + _EVERYTHING_SECONDS, ""
    while not stop.wait(options.interval):
        try:
            checkpoint = read(folder, with_state=False)
            if checkpoint.committed == last and time.monotonic() < due:
                continue
            with connected(options, env) as connection:
                changes = plan(connection, checkpoint, options.group, options.topic or (), **_permitted(options))
                line = _summary(checkpoint, apply(connection, options.group, changes), options.group)
            last, due = checkpoint.committed, time.monotonic() + _EVERYTHING_SECONDS
        except KctlError as error:
            if not error.retriable and not isinstance(error, CheckpointUnusable):
                raise
            line = f"{error}; tried again every {options.interval:g} s"
        if line != reported:
            sys.stderr.write(f"{instant(time.time())} {clean(line)}\n")
            sys.stderr.flush()
        reported = line


def _permitted(options: argparse.Namespace) -> dict[str, bool]:
    return {"goes_back": options.force, "is_trusted": options.trust}


def _summary(checkpoint: Checkpoint, changes: list[OffsetChange], group: str) -> str:
    failed = [each for each in changes if each.error is not None]
    text = f"batch {checkpoint.committed}: {len(changes) - len(failed)} of {len(changes)} offsets for group {group}"
    return text + (f", not {failed[0].topic}-{failed[0].partition}: {failed[0].error}" if failed else "")


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
