"""The log of a Delta table as files: what delta-rs does not answer about it. Nothing is written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

__all__ = [
    "LAST_CHECKPOINT",
    "actions",
    "added",
    "app_ids",
    "checkpoint_path",
    "committed_at",
    "entry_path",
    "last_checkpoint",
    "was_added",
]

LAST_CHECKPOINT = "_last_checkpoint"
"""The file that names the newest checkpoint."""

MOST_ENTRIES = 10_000
"""So many are searched for a batch's files at the most: some hundred milliseconds."""


def entry_path(table: Path, version: int) -> Path:
    """What the commit of a version has written; a clean-up of the log removes it."""
    return table / "_delta_log" / f"{version:020}.json"


def checkpoint_path(table: Path, version: int) -> Path:
    """Of a version that has one, as kctl and delta-rs write it."""
    return table / "_delta_log" / f"{version:020}.checkpoint.parquet"


def added(table: Path, version: int) -> list[Path]:
    """The files that a commit has added. Raises OSError."""
    return [table / unquote(action["add"]["path"]) for action in actions(table, version) if "add" in action]


def last_checkpoint(table: Path) -> int | None:
    """The version of the newest checkpoint, by their names: what `_last_checkpoint` has may be older, or damaged.
    Raises OSError."""
    found = (table / "_delta_log").glob("[0-9]" * 20 + ".checkpoint*.parquet")
    return max((int(path.name.partition(".")[0]) for path in found), default=None)


def committed_at(table: Path, version: int) -> float | None:
    """Unix seconds, by the clock of the file system, as Delta itself dates a commit; None where it was cleaned up."""
    try:
        return entry_path(table, version).stat().st_mtime
    except FileNotFoundError:
        return None


def was_added(table: Path, folder: str, versions: range) -> bool | None:
    """Whether a commit of these versions has added a file of this folder; None: nobody can know any more, for entries
    were cleaned up, or are too many. Raises OSError."""
    if len(versions) > MOST_ENTRIES:
        return None
    wanted = f"{folder}/".encode()
    try:
        return any(wanted in entry_path(table, version).read_bytes() for version in versions)
    except FileNotFoundError:
        return None


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    """What a commit consists of. Raises OSError."""
    return [json.loads(line) for line in entry_path(table, version).read_text().splitlines()]


def app_ids(table: Path) -> set[str]:
    """Names of all `txn` actions, also of such that are not in the newest version any more. Raises OSError."""
    checkpoint = last_checkpoint(table)
    found = set() if checkpoint is None else _of_checkpoint(table, checkpoint)
    for path in (table / "_delta_log").glob("[0-9]" * 20 + ".json"):
        if checkpoint is None or int(path.stem) > checkpoint:
            found |= _of_entry(path)
    return found


def _of_checkpoint(table: Path, version: int) -> set[str]:
    import pyarrow.parquet as pq

    found: set[str] = set()
    for path in (table / "_delta_log").glob(f"{version:020}.checkpoint*.parquet"):
        with pq.ParquetFile(path) as file:
            if "txn" in file.schema_arrow.names:
                column = file.read(columns=["txn.appId"])["txn"]
                found |= {txn["appId"] for txn in column.drop_null().to_pylist() if txn["appId"] is not None}
    return found


def _of_entry(path: Path) -> set[str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:  # cleaned up meanwhile, so a checkpoint has it
        return set()
    actions = [json.loads(line) for line in lines if '"txn"' in line]  # not parsed: an entry may add 100,000 files
    return {action["txn"]["appId"] for action in actions if "txn" in action}
