"""Removes files that were replaced or never committed, if no version within the retention needs them."""

import time
from collections.abc import Collection, Iterable
from urllib.parse import unquote

from kctl_agent.storage.lake.delta import batch_plans as plans
from kctl_agent.storage.lake.delta.files import is_hidden
from kctl_agent.storage.lake.delta.log import LOG
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import FolderFile

RETENTION_HOURS = 168  # Delta's own default of `delta.deletedFileRetentionDuration`

COMMIT_SECONDS = 86_400.0
"""Files younger than this stay regardless of the retention, because a writer may still commit them."""


def unused(lake: LakeTable, hours: int | None = None) -> list[FolderFile]:
    """Returns files that neither a version of the last `hours` nor a running batch uses. If `hours` is None, the
    table's configuration applies, by default 7 days. Raises StorageUnusable.

    Leaves out the files of a batch as long as the batch has a plan (see `batch_plans`). Leaves out uncommitted files
    of other writers only for `COMMIT_SECONDS`.
    """
    plans.sweep(lake)
    with lake.latest() as table:
        listed = set(table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True))
    oldest = time.time() - 3600 * (RETENTION_HOURS if hours is None else hours)
    # In this order (files, plans, table), a batch that ends in between keeps its files.
    with lake.errors():
        found = [file for file in lake.folder.files() if _is_left(file, listed, oldest)]
        in_flight = plans.planned(lake.folder)
    with lake.latest() as table:
        needed = {unquote(path) for path in table.get_add_actions().column("path").to_pylist()}
    left = (file for file in found if file.name.split("/")[0] not in in_flight and file.name not in needed)
    return sorted(left, key=lambda file: file.name)


def _is_left(file: FolderFile, listed: Collection[str], oldest: float) -> bool:
    *folders, name = file.name.split("/")
    if file.name.startswith(plans.BATCH):
        # Leftovers of Spark's tasks are where engines do not look for files of the table.
        return file.name in listed or (file.modified < oldest and any(map(is_hidden, (*folders, name))))
    if folders == [LOG]:
        is_of_writer = name.startswith("_commit_") and name.endswith(".json.tmp")
    else:
        is_of_writer = file.name in listed and name.endswith(".parquet") and all("=" in folder for folder in folders)
    return is_of_writer and file.modified < time.time() - COMMIT_SECONDS


def remove(lake: LakeTable, files: Iterable[FolderFile]) -> int:
    """Removes files, and folders that become empty. Returns the number of files. Raises StorageUnusable."""
    with lake.errors():
        return lake.folder.remove(file.name for file in files)
