import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta import table
from kctl_agent.storage.lake.delta.log import actions, write_entry
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import before_the_write, begun, opened
from tests.table_conformance import compact


def test_tables_are_counted_after_a_while(filled: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = filled.stats().counts
    begun(opened(path), 10, 20).commit()
    soon = filled.stats().counts
    monkeypatch.setattr(filled.counter, "_next_at", 0.0)
    later = filled.stats().counts

    assert soon == first
    assert later == filled.count()
    assert [(c.version, c.rows, c.files, c.small_files) for c in (first, later) if c] == [(2, 10, 1, 1), (3, 20, 2, 2)]

    shutil.rmtree(path / "_delta_log")
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / f"{0:020}.json").write_text("no JSON")
    monkeypatch.setattr(filled.counter, "_next_at", 0.0)
    assert filled.stats().counts is None, "a table that cannot be read"
    assert LakeStorage(LocalFolder(path.parent / "none")).stats().counts is None


def test_while_a_batch_is_committed_the_table_is_counted_all_the_same(filled: LakeStorage, path: Path) -> None:
    other = opened(path)
    is_busy, may_end = threading.Event(), threading.Event()

    def use() -> None:
        with other.table.state():
            is_busy.set()
            may_end.wait(10)

    thread = threading.Thread(target=use)
    thread.start()
    is_busy.wait(10)
    during = other.stats()
    may_end.set()
    thread.join()

    assert during.counts == filled.count()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_a_compaction_and_a_delete_have_left_is_counted_as_delta_rs_counts_it(
    filled: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, has_checkpoint: bool
) -> None:
    for start in (10, 20, 30):
        begun(filled, start, start + 10).commit()
    if has_checkpoint:
        DeltaTable(path).create_checkpoint()
    assert filled.stats().counts == filled.count()
    begun(filled, 40, 50).commit()
    compact(filled.table, 1 << 20)
    DeltaTable(path).delete("offset < 15")
    begun(filled, 50, 60).commit()
    monkeypatch.setattr(filled.counter, "_next_at", 0.0)

    counted = filled.count()
    theirs = pa.table(DeltaTable(path).get_add_actions(flatten=True))

    assert filled.stats().counts == counted
    assert (counted.files, counted.bytes) == (theirs.num_rows, sum(theirs["size_bytes"].to_pylist()))
    assert counted.rows == sum(theirs["num_records"].to_pylist()) == 45
    assert counted.version == DeltaTable(path).version()


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_rows_of_a_deletion_vector_are_not_counted(filled: LakeStorage, path: Path, has_checkpoint: bool) -> None:
    DeltaTable(path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    [add] = [action["add"] for action in actions(filled.folder, 2) if "add" in action]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    changed = [
        {"add": {**add, "deletionVector": {**vector, "cardinality": 3}}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
    ]
    assert write_entry(filled.folder, 4, changed)
    if has_checkpoint:
        DeltaTable(path).create_checkpoint()
    begun(filled, 10, 20).commit()

    table_counts = filled.count()

    assert (table_counts.version, table_counts.files, table_counts.rows) == (5, 2, 17)


def test_failed_and_retried_commits_count(filled: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_the_write(monkeypatch, lambda: DeltaTable(path).delete("offset = 3"))
    begun(filled, 10, 20).commit()
    assert (filled.stats().commits_failed, filled.stats().commits_retried) == (0, 1)

    monkeypatch.setattr(table, "write_entry", lambda *_: False)
    monkeypatch.setattr(table, "COMMIT_SECONDS", 0.0)
    with pytest.raises(StorageUnusable, match="always commit first"):
        begun(filled, 20, 30).commit()
    assert (filled.stats().commits_failed, filled.stats().commits_retried) == (1, 2)
