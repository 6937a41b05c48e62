import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.chunk import Advance, StoredOffset, StoredOffsetMoved
from kctl_agent.storage.lake.delta.batch_plans import sweep
from kctl_agent.storage.lake.delta.commit_actions import append_actions
from kctl_agent.storage.lake.delta.files import DataFile
from kctl_agent.storage.lake.delta.log import actions
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.table_maintenance import looked_after
from tests.conformance.given import TOPIC_ID
from tests.lake_tables import FIELDS, TP, at, before_the_write, begun, filled, offsets, opened, reported, rows, schema
from tests.table_conformance import GROUP, OpenTable, TableDead, TableOffsets
from tests.table_conformance import opened as opened_for_conformance


@pytest.fixture
def open_table(path: Path) -> OpenTable:
    return lambda: opened_for_conformance(LakeStorage(LocalFolder(path)))


class TestOffsets(TableOffsets): ...


class TestDead(TableDead): ...


@pytest.mark.shows("a worker that was frozen commits nothing once its partitions have a new owner")
def test_a_commit_after_the_check_is_noticed(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, quick = begun(storage, 100, 120), begun(opened(path), 100, 110)
    before_the_write(monkeypatch, quick.commit)

    with pytest.raises(StoredOffsetMoved):
        late.commit()

    assert offsets(path) == list(range(100, 110))


@pytest.mark.parametrize("counted", [0, 9, 11])
def test_a_batch_with_other_rows_than_written_is_rejected(storage: LakeStorage, path: Path, counted: int) -> None:
    batch = begun(storage, 100, 110)

    with pytest.raises(StorageUnusable, match=f"has written {counted} rows? into .* the files there have 10: nothing"):
        batch.commit(reported(batch.folder, counted))

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    assert offsets(path) == []
    assert not Path(batch.folder.uri).exists()
    again = begun(storage, 100, 110)
    assert len(again.commit(reported(again.folder, 10))) == 1


def test_a_file_of_an_uncommitted_attempt_is_no_part_of_the_table(storage: LakeStorage, path: Path) -> None:
    batch = begun(storage, 100, 110)
    committed = reported(batch.folder, 10)
    leftover = Path(batch.folder.uri, "part-00000-of-another-attempt.parquet")
    shutil.copy(Path(batch.folder.uri, *committed.files), leftover)

    assert [file.rows for file in batch.commit(committed)] == [10]

    assert offsets(path) == list(range(100, 110))
    assert not leftover.exists()


def test_a_log_that_was_cleaned_up_past_the_last_read_is_read_again(storage: LakeStorage, path: Path) -> None:
    """Another writer cleaned up. Its checkpoint is older than the newest version that was read."""
    DeltaTable(path).create_checkpoint()
    reader = opened(path)
    begun(storage, 100, 110).commit()
    other = DeltaTable(path)
    begun(storage, 110, 120).commit()
    reader.count()
    other.create_checkpoint()
    for old in (path / "_delta_log").glob("[0-9]*"):
        if int(old.name[:20]) < other.version():
            old.unlink()

    assert at(reader) == StoredOffset("t", 0, TOPIC_ID, 120, 1)
    begun(reader, 120, 125).commit()
    assert offsets(path) == list(range(100, 125))


def test_no_batch_goes_into_a_table_that_replaced_its_own(storage: LakeStorage, path: Path) -> None:
    batch = begun(storage, 100, 110)
    assert opened(path).bind(GROUP) == storage.bind(GROUP) == str(DeltaTable(path).metadata().id)
    shutil.rmtree(path)
    opened(path).init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    Path(batch.folder.uri).mkdir()

    with pytest.raises(StorageUnusable, match="was replaced by another"):
        batch.commit()


def test_files_of_impossible_batches_are_removed_and_others_stay(storage: LakeStorage, path: Path) -> None:
    abandoned, frozen = begun(storage, 100, 110), begun(storage, 100, 104)
    opened(path).stored_offsets([TP])
    begun(opened(path), 100, 110).commit()
    waiting = begun(opened(path), 110, 120)

    begun(opened(path), 110, 111).discard()
    sweep(storage.table)

    assert not Path(abandoned.folder.uri).exists()
    assert not Path(frozen.folder.uri).exists()
    assert Path(waiting.folder.uri).exists()
    waiting.commit()
    assert offsets(path) == list(range(100, 120))


def test_a_table_that_cannot_be_written_is_rejected_with_its_reason(path: Path, tmp_path: Path) -> None:
    opened(path)
    with pytest.raises(TableRefused, match=r"is partitioned by \(\), and storage.partition_by is \(topic\)"):
        LakeStorage(LocalFolder(path), partition_by=["topic"]).fit(schema(*FIELDS))
    with pytest.raises(TableRefused, match="names a column twice: topic, topic"):
        LakeStorage(LocalFolder(tmp_path / "new"), partition_by=["topic", "topic"]).fit(schema(*FIELDS))
    with pytest.raises(TableRefused, match="names country, but the columns are"):
        LakeStorage(LocalFolder(tmp_path / "new"), partition_by=["country"]).fit(schema(*FIELDS))
    with pytest.raises(StorageUnusable, match=r"the folder .*none .* does not exist: mkdir -p .*/none"):
        LakeStorage(LocalFolder(tmp_path / "none" / "table")).prepare()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("x")
    with pytest.raises(StorageUnusable, match="is neither a Delta table nor empty"):
        LakeStorage(LocalFolder(tmp_path / "letters")).prepare()


Change = Callable[[Path], None]


def replaced_by(table: pa.Table, **more: Any) -> Change:
    return lambda path: write_deltalake(path, table, mode="overwrite", schema_mode="overwrite", **more)


def with_property(path: Path) -> None:
    name = "delta.setTransactionRetentionDuration"
    DeltaTable(path).alter.set_table_properties({name: "interval 1 days"}, raise_if_not_exists=False)


def with_feature(path: Path) -> None:
    DeltaTable(path).alter.add_feature([TableFeatures.ChangeDataFeed], allow_protocol_versions_increase=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced_by(pa.table({"offset": ["a"], "other": [1]})), "has no column topic"),
        (replaced_by(rows([1]), partition_by=["topic"]), r"is partitioned by \(topic\)"),
        (
            lambda path: DeltaTable(path).alter.add_columns([Field("n", PrimitiveType("string"), nullable=False)]),
            "must not be null",
        ),
        (lambda path: DeltaTable(path).alter.add_constraint({"small": "offset < 50"}), "requires writers of version 3"),
        (with_property, "stored offsets would expire"),
        (with_feature, "features that kctl cannot write: changeDataFeed$"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["before the commit", "in the commit"])
def test_a_batch_is_not_committed_to_a_table_that_no_longer_fits(
    storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, reason: str, is_late: bool
) -> None:
    batch = begun(storage, 100, 110)
    if is_late:
        before_the_write(monkeypatch, lambda: change(path))
    else:
        change(path)
    with pytest.raises(TableRefused, match=reason):
        batch.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    assert batch.folder.name not in str(DeltaTable(path).file_uris())
    assert storage.stats().commits_failed == 1


def test_commits_are_synced_before_they_show(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = begun(storage, 100, 110)
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def noted_link(old: Path, new: Path) -> None:
        steps.append("seen")
        link(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)

    batch.commit()

    [written] = {step for step in steps[: steps.index("seen")] if step.endswith(".json.tmp")}
    assert not Path(written).exists()
    assert str(path / "_delta_log") in steps[steps.index("seen") :]


def test_paths_are_escaped_as_delta_rs_escapes_them(path: Path) -> None:
    """delta-rs finds the files that a compaction or DELETE removed by the escaped path."""
    letters = "".join(map(chr, range(33, 127))).replace("/", "") + "ü€ \U0001f600"
    made = DeltaTable.create(path, Schema([Field("a", PrimitiveType("string"))]))
    made.create_write_transaction(
        [AddAction(f"x={letters}/f.parquet", 1, {}, 1, True, "{}")], "append", made.schema(), []
    )
    [theirs] = [action["add"] for action in actions(LocalFolder(path), 1) if "add" in action]

    *_, ours = append_actions([DataFile(f"x={letters}/f.parquet", 1, 1, {}, 1)], {}, [], 1)

    assert ours["add"]["path"] == theirs["path"]


def test_what_delta_rs_reports_is_one_line_without_its_stack(path: Path) -> None:
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020}.json").write_text("xx")
    reported = pytest.raises(StorageUnusable, match=r"cannot be used: .*unexpected 'x' whilst parsing value$")
    with reported, LakeStorage(LocalFolder(path)).table.errors():
        DeltaTable(path)

    file = path.with_name("file")
    file.write_text("x")
    with pytest.raises(StorageUnusable, match="is not a folder: name another") as raised:
        LakeStorage(LocalFolder(file)).prepare()
    assert "\x1b" not in str(raised.value)


def of_days(path: Path, *days: str) -> tuple[LakeStorage, LakeBatch]:
    made = opened(path, columns=schema(("n", "long"), ("day", "date")), start=0, partition_by=["day"])
    batch = made.begin([Advance(*TP, 1, 0, len(days))])
    for number, day in enumerate(days):
        filled(batch, pa.table({"n": [number]}), f"day={day}")
    return made, batch


@pytest.mark.shows("a date that readers cannot represent is rejected before it is stored")
@pytest.mark.parametrize("day", ["+10000-01-01", "0000-12-31", "-0044-03-15"])
def test_a_day_that_readers_of_the_table_do_not_support_is_rejected_before_it_is_stored(path: Path, day: str) -> None:
    made, batch = of_days(path, "2026-11-24", day)

    with pytest.raises(TableRefused, match=re.escape(f"a row of the batch is of {day} in day, by which")):
        batch.commit()

    assert at(made) == StoredOffset(*TP, TOPIC_ID, 0, 1)
    assert not Path(batch.folder.uri).exists()
    assert DeltaTable(path).to_pyarrow_table().num_rows == 0

    _, batch = of_days(path.with_name("possible"), "0001-01-01", "9999-12-31", "__HIVE_DEFAULT_PARTITION__")
    assert sum(file.rows for file in batch.commit()) == 3


def test_maintenance_reports_a_table_of_which_delta_rs_can_make_nothing_and_does_the_rest(path: Path) -> None:
    made, batch = of_days(path, "2026-11-24")
    batch.commit()
    version = DeltaTable(path).version()
    entry = path / "_delta_log" / f"{version:020}.json"
    far = entry.read_text().replace("2026-11-24", "+10000-01-01")  # a value that another writer may leave
    entry.with_name(f"{version + 1:020}.json").write_text(far)

    done, failed = looked_after(made, GROUP.group)

    assert (done, failed) == ([], ["ValueError: year 10000 is out of range"])
    assert (path / "_kctl" / "vacuumed").exists()
