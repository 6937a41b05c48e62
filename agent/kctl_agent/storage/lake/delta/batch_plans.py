"""Plans of batches, by which other processes find the files of a batch that was never committed.

A batch writes its plan before its first file, and removes it after its commit. The plan names the stored offsets and
the table's version from which the batch started. `sweep` compares these with later log entries to find whether the
batch was committed. While the plan exists, `vacuum` ignores the batch's folder.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.files import NOTE
from kctl_agent.storage.lake.delta.log import LogUnreadable, entry_name, parsed, reading_log
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import FOLDER, Folder, FolderFile

log = logging.getLogger(__name__)

BATCH = "kctl-"
SUFFIX = ".json"
PLANNED = re.compile(rf"({BATCH}(?:requeue-)?[0-9a-f]+){re.escape(SUFFIX)}")
"""The name of a plan. Other files do not name a batch's folder: `_delta_log.json` would name the table's own log."""
MOST_ENTRIES = 1000
GIVEN_UP_SECONDS = 86_400.0
"""An older plan without a folder is removed: a batch that fails for days leaves one with each try."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The table's state when a batch started."""

    version: int
    numbers: Mapping[str, int | None]  # of `txn` actions that the batch changes (None: not in the table)

    def write(self, table: Folder, batch: str) -> None:
        content = json.dumps({"version": self.version, "numbers": self.numbers}).encode()
        try:
            table.write(plan_name(batch), content)
        except OSError as error:
            raise StorageUnusable(f"{table.subfolder(FOLDER)} cannot be written: {error.strerror}") from error

    @classmethod
    def parse(cls, content: bytes) -> BatchPlan:
        """Reads a plan. Raises ValueError if a power cut has damaged it."""
        try:
            found = json.loads(content)
            return cls(int(found["version"]), dict(found["numbers"]))
        except (TypeError, KeyError) as error:
            raise ValueError("this is not a plan of a batch") from error

    def may_be_committed(self, read: Callable[[str], int | None]) -> bool:
        return all(read(name) == number for name, number in self.numbers.items())


def plan_name(batch: str) -> str:
    return f"{FOLDER}/{batch}{SUFFIX}"


def planned(table: Folder) -> set[str]:
    return {batch for batch, _ in _plans(table)}


def has_plan_on(table: Folder, name: str) -> bool:
    return any(plan is not None and name in plan.numbers for _, plan in _read_all(table))


def forget(table: Folder, batch: str) -> None:
    try:
        table.remove([plan_name(batch), f"{batch}/{NOTE}"])
    except OSError as error:
        raise StorageUnusable(f"{table.subfolder(FOLDER)} cannot be written: {error.strerror}") from error


def sweep(table: LakeTable) -> None:
    """Removes the files of batches that can no longer be committed, because the table's stored offsets differ from
    those in their plans. Raises StorageUnusable."""
    with table.errors():  # before the table, so that no plan is newer than what is read of it
        plans = dict(_read_all(table.folder))
    if not plans:
        return
    with table.state() as newest:
        read = newest.transactions.get
        left = {file: plan for file, plan in plans.items() if plan is None or not plan.may_be_committed(read)}
    # A batch that may still be committed loses only its plan, because it may have begun to write by now.
    left |= {file: None for file in plans if file not in left and _is_given_up(table.folder, file)}
    for file, plan in left.items():
        try:
            _remove(table.folder, file, plan)
        except OSError as error:  # no batch needs it
            log.debug("the remains of %s were not removed: %s", _batch(file), error)


def _plans(table: Folder) -> Iterator[tuple[str, FolderFile]]:
    for file in table.subfolder(FOLDER).files():
        if (found := PLANNED.fullmatch(file.name)) is not None:
            yield found[1], file


def _batch(plan: FolderFile) -> str:
    return plan.name.removesuffix(SUFFIX)


def _read_all(table: Folder) -> Iterator[tuple[FolderFile, BatchPlan | None]]:
    for batch, file in _plans(table):
        try:
            yield file, BatchPlan.parse(table.read(plan_name(batch)))
        except FileNotFoundError as error:  # its batch has ended
            log.debug("the plan of %s was not read: %s", batch, error)
        except ValueError:
            yield file, None


def _is_given_up(table: Folder, plan: FolderFile) -> bool:
    return not table.subfolder(_batch(plan)).exists() and plan.modified < time.time() - GIVEN_UP_SECONDS


def _remove(table: Folder, file: FolderFile, plan: BatchPlan | None) -> None:
    folder = table.subfolder(_batch(file))
    # Older versions of the table need a committed batch's files. If the log does not show the result, `vacuum` decides.
    if plan is not None and folder.exists() and _is_overtaken(table, folder.name, plan):
        folder.remove_all()
    table.remove([plan_name(folder.name)])


def _is_overtaken(table: Folder, batch: str, plan: BatchPlan) -> bool:
    wanted = f"{batch}/".encode()
    with suppress(FileNotFoundError, LogUnreadable):  # entries were cleaned up, or the table was rolled back
        for version in range(plan.version + 1, plan.version + 1 + MOST_ENTRIES):
            content = table.read(name := entry_name(version))
            if wanted in content:
                return False
            with reading_log(name):
                moved = {txn["appId"]: txn["version"] for each in parsed(content) if (txn := each.get("txn"))}
            if not plan.may_be_committed({**plan.numbers, **moved}.get):
                return True
    return False
