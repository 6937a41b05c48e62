"""A table's log that changes while a process is frozen between any two steps, or during a read: listed entries may be
gone, and listings incomplete."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.delta import checkpoint, log_state, table
from kctl_agent.storage.lake.delta import table_counts as counts
from kctl_agent.storage.lake.delta.log import LogFiles, log_files, write_entry
from kctl_agent.storage.lake.delta.log_reader import DeltaLogReader
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.maintenance.vacuum import unused
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import TOPIC_ID, TP, at, before_the_write, begun, offsets, opened
from tests.table_conformance import compact

OTHER = Binding("other", "cluster-1")


@pytest.fixture
def other(storage: LakeStorage, path: Path) -> LakeStorage:
    return opened(path, OTHER, start=0)


def cleaned_up(path: Path, besides: int = -1) -> None:
    """Writes a checkpoint one second old and removes the earlier entries, except for `besides`."""
    DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").glob("*checkpoint*"):
        earlier = file.stat().st_mtime - 1
        os.utime(file, (earlier, earlier))
    for entry in (path / "_delta_log").glob("*.json"):
        if int(entry.stem) not in (besides, DeltaTable(path).version()):
            entry.unlink()


def entry(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020}.json"


@pytest.mark.shows("a power cut leaves no damaged log entry of kctl; other writers' damaged entries are rejected")
def test_nothing_is_stored_in_a_cleaned_log(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit would be below the newest checkpoint, where no reader sees it."""
    late, quick = begun(storage, 100, 120), begun(opened(path), 100, 110)

    def clean_up() -> None:
        quick.commit()
        DeltaTable(path).create_checkpoint()
        for entry in (path / "_delta_log").glob("*.json"):
            entry.unlink()

    before_the_write(monkeypatch, clean_up)
    with pytest.raises(StorageUnusable, match="was cleaned up or replaced in a commit"):
        late.commit()

    assert at(storage) == at(opened(path)) == StoredOffset("t", 0, TOPIC_ID, 110, 1)
    assert offsets(path) == list(range(100, 110))


def test_a_process_that_wakes_up_does_not_go_on_from_its_own_entry_of_a_log_that_is_cleaned_up(
    storage: LakeStorage, other: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs removes entries in no fixed order: the entry that was read may remain after the next one is removed."""
    late, read = begun(storage, 100, 110), DeltaTable(path).version()

    def go_on() -> None:
        for start in (0, 10, 20):
            begun(other, start, start + 10).commit()
        cleaned_up(path, besides=read)

    before_the_write(monkeypatch, go_on)
    with pytest.raises(StorageUnusable, match="was cleaned up or replaced in a commit"):
        late.commit()

    assert entry(path, read).exists()
    assert not entry(path, read + 1).exists(), "what no reader sees is removed"
    for start in (100, 110, 120):
        begun(storage, start, start + 10).commit()
    assert offsets(path) == [*range(30), *range(100, 130)]


def test_entries_of_checkpoints_are_kept(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, confirm = begun(storage, 100, 110), DeltaLogReader.confirm

    def frozen(reader: DeltaLogReader, *args: object) -> object:
        DeltaTable(path).create_checkpoint()
        return confirm(reader, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(DeltaLogReader, "confirm", frozen)
        with pytest.raises(StorageUnusable, match="was cleaned up or replaced in a commit"):
            late.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    assert offsets(path) == list(range(100, 110))
    assert entry(path, DeltaTable(path).version()).exists()


def test_a_write_below_a_checkpoint_misleads_no_reader(storage: LakeStorage, other: LakeStorage, path: Path) -> None:
    read = DeltaTable(path).version()
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    begun(opened(path), 100, 110).commit()
    shutil.copy(entry(path, read + 1), path.parent / "unseen.json")
    begun(other, 0, 10).commit()
    begun(opened(path), 110, 120).commit()
    cleaned_up(path, besides=read)
    shutil.copy(path.parent / "unseen.json", entry(path, read + 1))

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 120, 1)
    begun(storage, 120, 130).commit()
    assert offsets(path) == [*range(10), *range(100, 130)]


def test_no_gap_is_left(storage: LakeStorage, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process wakes up in a table that went back. With a gap below its entry, no reader could open the table."""
    shutil.copytree(path, tmp_path / "copy")
    for start in (100, 110, 120):
        begun(storage, start, start + 10).commit()
    late = begun(storage, 130, 140)

    def go_back() -> None:
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "copy", path)

    before_the_write(monkeypatch, go_back)
    with pytest.raises(StorageUnusable, match="was cleaned up or replaced in a commit"):
        late.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    begun(opened(path), 100, 110).commit()
    assert offsets(path) == list(range(100, 110))


def test_known_checkpoints_are_synced(storage: LakeStorage, path: Path, synced: list[Path]) -> None:
    DeltaTable(path).create_checkpoint()
    version, log = DeltaTable(path).version(), path / "_delta_log"

    begun(storage, 100, 110).commit()
    assert {log / f"{version:020}.checkpoint.parquet", log / "_last_checkpoint"} <= set(synced)

    synced.clear()
    storage.advance_offsets([Advance(*TP, 1, 110, 111)])
    assert log / "_last_checkpoint" not in synced, "once is enough"


def test_other_writers_entries_are_synced(storage: LakeStorage, path: Path, synced: list[Path]) -> None:
    begun(opened(path), 100, 110).commit()
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "50"})
    version, log = DeltaTable(path).version(), path / "_delta_log"
    synced.clear()

    storage.stored_offsets([TP])
    assert synced == [log / f"{version:020}.json", log]

    begun(opened(path), 110, 120).commit()
    synced.clear()
    storage.stored_offsets([TP])
    assert synced == [log], "the name is not on the disk as soon as it is seen"


def overwrite(path: Path, version: int) -> None:
    """Hadoop's rename does this on a local disk, for a writer that saw no such entry before."""
    written = path / "_delta_log" / ".spark.tmp"
    written.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    os.replace(written, entry(path, version))


def overwrite_after_the_write(monkeypatch: pytest.MonkeyPatch, path: Path, version: int) -> None:
    def overwritten(*args: Any) -> bytes | None:
        written = write_entry(*args)
        overwrite(path, version)
        return written

    monkeypatch.setattr(table, "write_entry", overwritten)


@pytest.mark.shows("a commit that another writer overwrites does not count as stored, and is reported")
def test_overwritten_commits_are_not_stored(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, version = begun(storage, 100, 110), DeltaTable(path).version() + 1

    with monkeypatch.context() as patched:
        overwrite_after_the_write(patched, path, version)
        with pytest.raises(StorageUnusable, match=f"has overwritten version {version} of the table"):
            late.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    begun(storage, 100, 110).commit()
    assert offsets(path) == list(range(100, 110))

    # These offsets are below the stored ones, so no worker reads them again by itself.
    late, version = begun(storage, 110, 120), DeltaTable(path).version()
    overwrite_after_the_write(monkeypatch, path, version)
    with pytest.raises(StorageUnusable, match=f"has overwritten version {version} of the table"):
        late.commit()
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 120, 1)


def test_a_commit_overwritten_later_is_reported_once(storage: LakeStorage, other: LakeStorage, path: Path) -> None:
    begun(storage, 100, 110).commit()
    version = DeltaTable(path).version()
    begun(other, 0, 1).commit()
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    overwrite(path, version)

    with pytest.raises(StorageUnusable, match=f"has overwritten version {version} of the table"):
        begun(storage, 110, 120)

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    begun(storage, 100, 120).commit()
    assert offsets(path) == [0, *range(100, 120)]


@pytest.fixture
def grown(path: Path) -> LakeStorage:
    made = opened(path, start=0)
    for start in range(0, 30, 10):
        begun(made, start, start + 10).commit()
    return made


@contextmanager
def hidden(path: Path, version: int) -> Any:
    aside = entry(path, version).rename(path / "hidden")
    try:
        yield
    finally:
        aside.rename(entry(path, version))


USES: dict[str, Callable[[LakeStorage], Any]] = {
    "a query": lambda storage: storage.table.latest().__enter__().version(),
    "a compaction": lambda storage: compact(storage.table, storage.target_file_bytes),
    "a vacuum": lambda storage: unused(storage.table),
    "a rewrite": lambda storage: storage.table.rewrite(lambda table: int(table.version())),
    "a checkpoint": lambda storage: checkpoint.main(storage.folder.uri, None),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("times", [4, 5])
def test_gaps_are_reread(grown: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, use: str, times: int) -> None:
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
        USES[use](grown)
    else:
        with pytest.raises((StorageUnusable, deltalake.exceptions.DeltaError), match="found gap"):
            USES[use](grown)
    assert left == [0]


@pytest.mark.parametrize("times", [4, 5])
def test_a_clean_up_is_retried(grown: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    begun(grown, 30, 40).commit()
    before = log_files(grown.folder)
    DeltaTable(path).create_checkpoint()
    for version in range(3):
        entry(path, version).unlink()
    left = [times]

    def listed(table: Folder, *_: object) -> LogFiles:
        left[0] -= 1
        return before if left[0] >= 0 else log_files(table)

    for reader in (counts, log_state):
        monkeypatch.setattr(reader, "log_files", listed)
    if times == 5:
        with pytest.raises(StorageUnusable, match="entry 0 of its log is not there"):
            grown.count()
        return
    assert grown.count().rows == 40
    left[0] = times
    assert opened(path).stored_offsets([TP])[TP].next == 40
