"""Another process writes the log and cleans it up during a read: listed entries may be gone, and listings
incomplete."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta import checkpoint, log_state, table
from kctl_agent.storage.lake.delta import table_counts as counts
from kctl_agent.storage.lake.delta.log import LogFiles, log_files
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.maintenance.vacuum import unused
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import TP, begun, opened
from tests.table_conformance import compact


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    made = opened(path, start=0)
    for start in range(0, 30, 10):
        begun(made, start, start + 10).commit()
    return made


@contextmanager
def hidden(path: Path, version: int) -> Any:
    entry = path / "_delta_log" / f"{version:020}.json"
    os.rename(entry, entry.with_suffix(".hidden"))
    try:
        yield
    finally:
        os.rename(entry.with_suffix(".hidden"), entry)


USES: dict[str, Callable[[LakeStorage], Any]] = {
    "a query": lambda storage: storage.table.latest().__enter__().version(),
    "a compaction": lambda storage: compact(storage.table, storage.target_file_bytes),
    "a vacuum": lambda storage: unused(storage.table),
    "a rewrite": lambda storage: storage.table.rewrite(lambda table: int(table.version())),
    "a checkpoint": lambda storage: checkpoint.main(storage.folder.uri, None),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("times", [4, 5])
def test_what_uses_delta_rs_tries_again_where_its_listing_lacks_an_entry(
    storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, use: str, times: int
) -> None:
    opening, left = DeltaTable, [times]

    def raced(*args: Any, **options: Any) -> DeltaTable:
        if not left[0]:
            return opening(*args, **options)
        left[0] -= 1
        with hidden(path, 2):
            return opening(*args, **options)

    for module in (checkpoint, table):
        monkeypatch.setattr(module, "DeltaTable", raced)

    if times == 4:
        USES[use](storage)
    else:
        with pytest.raises((StorageUnusable, deltalake.exceptions.DeltaError), match="found gap"):
            USES[use](storage)
    assert left == [0]


@pytest.mark.parametrize("times", [4, 5])
def test_a_clean_up_is_retried(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    begun(storage, 30, 40).commit()
    before = log_files(storage.folder)
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    left = [times]

    def listed(table: Folder, *_: object) -> LogFiles:
        left[0] -= 1
        return before if left[0] >= 0 else log_files(table)

    for reader in (counts, log_state):
        monkeypatch.setattr(reader, "log_files", listed)
    if times == 5:
        with pytest.raises(StorageUnusable, match="entry 0 of its log is not there"):
            storage.count()
        return
    assert storage.count().rows == 40
    left[0] = times
    assert opened(path).stored_offsets([TP])[TP].next == 40
