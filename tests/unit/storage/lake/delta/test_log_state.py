from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from kctl_agent.storage.lake.delta import checkpoint
from kctl_agent.storage.lake.delta.log import LogUnreadable, actions, log_files
from kctl_agent.storage.lake.delta.log_state import LogState, NoTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import begun, offsets, opened, rows


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_what_delta_rs_reads_of_a_log_is_read(storage: LakeStorage, path: Path, is_cleaned_up: bool) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    if is_cleaned_up:
        DeltaTable(path).create_checkpoint()
        shutil.move(path / "_delta_log" / f"{0:020}.json", path.parent)
    begun(storage, 10, 20).commit()

    ours, theirs = LogState.read(LocalFolder(path)), DeltaTable(path)

    assert (ours.version, ours.id) == (theirs.version(), str(theirs.metadata().id))
    assert ours.configuration == theirs.metadata().configuration == {"delta.logRetentionDuration": "interval 1 days"}
    assert ours.partition_columns == theirs.metadata().partition_columns == []
    assert ours.fields == json.loads(theirs.schema().to_json())["fields"]
    assert ours.protocol["minWriterVersion"] == theirs.protocol().min_writer_version
    assert ours.features == {*(theirs.protocol().writer_features or ())}
    assert len(ours.transaction_names()) == 4
    for name in (*ours.transaction_names(), "none"):
        assert ours.transaction_version(name) == theirs.transaction_version(name)


def test_a_checkpoint_in_parts_counts_once_all_of_them_are_there(storage: LakeStorage, path: Path) -> None:
    """Delta's own writer writes the parts one by one."""
    DeltaTable(path).create_checkpoint()
    version, log = DeltaTable(path).version(), path / "_delta_log"
    [whole] = log_files(LocalFolder(path)).checkpoint_files
    rows = pq.ParquetFile(path / whole).read()
    (path / whole).unlink()
    parts = [log / f"{version:020}.checkpoint.{number:010}.{2:010}.parquet" for number in (1, 2)]
    pq.write_table(rows.slice(0, 2), parts[0])

    assert log_files(LocalFolder(path)).checkpoint is None
    assert LogState.read(LocalFolder(path)).version == version

    pq.write_table(rows.slice(2), parts[1])
    for entry in log.glob("*.json"):
        entry.unlink()
    assert log_files(LocalFolder(path)).checkpoint_files == tuple(f"_delta_log/{part.name}" for part in parts)
    assert LogState.read(LocalFolder(path)).transaction_version("kctl/cluster-1/payments%2Feu/t/0") == 10
    assert storage.count().rows == 10


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_line_ends_of_unicode_end_no_line_of_a_log(storage: LakeStorage, path: Path, character: str) -> None:
    """Other writers leave them unescaped in a file's statistics."""
    topic = pa.array([f"a{character}b"])
    write_deltalake(path, rows([1]).set_column(0, "topic", topic), mode="append")
    version = DeltaTable(path).version()

    begun(storage, 10, 20).commit()

    assert offsets(path) == sorted([*range(20), 1])
    [added] = [action["add"] for action in actions(LocalFolder(path), version) if "add" in action]
    assert json.loads(added["stats"])["minValues"]["topic"] == f"a{character}b"


@pytest.mark.parametrize("damage", [lambda _: b"", lambda content: content[:-100], lambda content: bytes(len(content))])
def test_a_checkpoint_that_is_damaged_is_passed_over_and_named(
    storage: LakeStorage, path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    DeltaTable(path).create_checkpoint()
    begun(storage, 10, 20).commit()
    DeltaTable(path).create_checkpoint()
    begun(storage, 20, 30).commit()
    [first, second] = sorted((path / "_delta_log").glob("*.checkpoint.parquet"))
    second.write_bytes(damage(second.read_bytes()))

    begun(opened(path), 30, 40).commit()
    assert f"{path} is read without a checkpoint, for {second.name} of its log cannot be read" in caplog.text
    assert first.name not in caplog.text

    first.write_bytes(b"")
    begun(opened(path), 40, 50).commit()
    checkpoint.main(str(path), None)  # delta-rs also reads from this checkpoint on
    assert offsets(path) == list(range(50))


def test_a_log_without_an_entry_and_a_damaged_checkpoint_without_its_entries_are_rejected(
    storage: LakeStorage, path: Path
) -> None:
    begun(storage, 10, 20).commit()
    entry = path / "_delta_log" / f"{2:020}.json"
    aside = entry.rename(path / "aside")
    with pytest.raises(LogUnreadable, match="entry 2 of its log is not there"):
        LogState.read(LocalFolder(path))
    with pytest.raises(NoTable):
        LogState.read(LocalFolder(path.parent))

    aside.rename(entry)
    DeltaTable(path).create_checkpoint()
    [checkpoint] = (path / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")

    (path / "_delta_log" / f"{int(checkpoint.name[:20]):020}.json").unlink()
    with pytest.raises(LogUnreadable, match=f"{checkpoint.name} of its log cannot be read"):
        LogState.read(LocalFolder(path))
    (path / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(LogUnreadable, match=f"{checkpoint.name} of its log cannot be read"):
        LogState.read(LocalFolder(path))
