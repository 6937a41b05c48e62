"""Counts a table's files, bytes and rows. Reads the log in parts, because delta-rs would load the whole file list."""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.log import (
    EntryMissing,
    checkpoint_opened,
    committed_at,
    entry_name,
    log_files,
    read_again,
    reading_log,
)
from kctl_agent.storage.lake.delta.log_state import NoTable
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.limits import TableCounts

SMALL = 0.5
"""Files below this part of the compaction's target size are small, as in Delta's auto compaction. Filled files often
stay a little below the target size."""
COUNT_SECONDS = 10.0
COUNT_SHARE = 0.01
NUM_RECORDS = re.compile(r'\{"numRecords":(\d+)')


def is_small(size: int, target_file_bytes: int) -> bool:
    return size < target_file_bytes * SMALL


def count(table: Folder, target_file_bytes: int) -> TableCounts:
    return read_again(lambda: _count(table, target_file_bytes), FileNotFoundError, EntryMissing)


def _count(table: Folder, target_file_bytes: int) -> TableCounts:
    log = log_files(table)
    if log.newest < 0:
        raise NoTable
    version = log.checkpoint
    since: dict[str, tuple[int, int | None] | None] = {}
    with suppress(FileNotFoundError):  # one by one: a listing may omit an entry that is being written
        while True:
            # A new deletion vector removes and adds its file, in any order.
            for added, action in sorted(_entry(table, version + 1), key=lambda each: each[0]):
                since[unquote(action["path"])] = (action["size"], action["rows"]) if added else None
            version += 1
    if version < log.newest:
        raise EntryMissing(version + 1)
    total = _Total(target_file_bytes)
    for checkpoint in log.checkpoint_files:
        for name, size, rows in _of_checkpoint(table, checkpoint):
            if unquote(name) not in since:
                total.add(size, rows)
    for file in since.values():
        if file is not None:
            total.add(*file)
    return total.counts(table, version)


@dataclass(slots=True)
class _Total:
    target_file_bytes: int
    files: int = 0
    bytes: int = 0
    small: int = 0
    rows: int | None = 0

    def add(self, size: int, rows: int | None) -> None:
        self.files += 1
        self.bytes += size
        self.small += is_small(size, self.target_file_bytes)
        self.rows = None if rows is None or self.rows is None else self.rows + rows

    def counts(self, table: Folder, version: int) -> TableCounts:
        return TableCounts(version, self.files, self.bytes, self.rows, self.small, committed_at(table, version))


def _entry(table: Folder, version: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    name = entry_name(version)
    with reading_log(name), table.open(name) as lines:
        for line in lines:
            parsed = json.loads(line)
            for kind in ("add", "remove"):
                if (action := parsed.get(kind)) is not None:
                    yield kind == "add", _checked(action, kind)


def _checked(action: dict[str, Any], kind: str) -> dict[str, Any]:
    path, size, stats = action["path"], action.get("size"), action.get("stats")
    if not isinstance(path, str) or (kind == "add" and not isinstance(size, int)):
        raise ValueError(f"its `{kind}` has no path, or no size")
    rows = _rows(stats, action.get("deletionVector"))
    return {"path": path, "size": size, "rows": rows, "dataChange": action.get("dataChange", True)}


def _of_checkpoint(table: Folder, name: str) -> Iterator[tuple[str, int, int | None]]:
    wanted = ["add.path", "add.size", "add.stats", "add.deletionVector.cardinality"]
    with checkpoint_opened(table, name) as file:
        for rows in file.iter_batches(batch_size=4096, columns=wanted):
            for add in rows.column("add").drop_null().to_pylist():
                if add["path"] is not None:
                    yield add["path"], add["size"], _rows(add.get("stats"), add.get("deletionVector"))


def _rows(stats: str | None, deleted: Mapping[str, Any] | None) -> int | None:
    if stats is None:
        return None
    found = NUM_RECORDS.match(stats)
    number = json.loads(stats).get("numRecords") if found is None else found[1]
    return None if number is None else int(number) - int((deleted or {}).get("cardinality") or 0)


class TableCounter:
    """Counts a table, at most once in `COUNT_SECONDS`. A table in an object store is counted in a separate thread."""

    def __init__(self, lake: LakeTable, target_file_bytes: int) -> None:
        self._lake = lake
        self._target_file_bytes = target_file_bytes
        self._is_near = lake.folder.local is not None
        self._last: TableCounts | None = None
        self.is_absent = False
        self._next_at = 0.0
        self._counting: threading.Thread | None = None

    def last(self) -> TableCounts | None:
        is_counting = self._counting is not None and self._counting.is_alive()
        began = time.monotonic()
        if began < self._next_at or is_counting:
            return self._last
        if self._is_near:
            self._count(began)
        else:
            self._counting = threading.Thread(target=self._count, args=(began,), name="kctl-count", daemon=True)
            self._counting.start()
        return self._last

    def _count(self, began: float) -> None:
        is_absent, counted = False, None
        try:
            with self._lake.errors():
                try:
                    counted = self._continued() or count(self._lake.folder, self._target_file_bytes)
                except NoTable:
                    is_absent = True
        except StorageUnusable:  # the next batch reports it
            pass
        self._last, self.is_absent = counted, is_absent
        now = time.monotonic()
        if is_absent and self._is_near:  # cheap to check
            self._next_at = now
        else:  # waiting for an unreachable store takes no processor time
            self._next_at = now + max(COUNT_SECONDS, 0.0 if counted is None else (now - began) / COUNT_SHARE)

    def _continued(self) -> TableCounts | None:
        last = self._last
        if (
            last is None
            or last.committed_at is None
            or committed_at(self._lake.folder, last.version) != last.committed_at
        ):
            return None  # no count yet, or another log
        total = _Total(self._target_file_bytes, last.files, last.bytes, last.small_files, last.rows)
        version = last.version
        try:
            while True:
                for added, action in _entry(self._lake.folder, version + 1):
                    if not added or not action["dataChange"]:
                        return None  # the entry removed files or changed statistics
                    total.add(action["size"], action["rows"])
                version += 1
        except FileNotFoundError:
            return total.counts(self._lake.folder, version)
