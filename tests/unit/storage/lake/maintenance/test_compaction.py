import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.lake.delta.files import DataFile, TableFile
from kctl_agent.storage.lake.delta.log import entry_name
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.maintenance import compaction
from kctl_agent.storage.lake.maintenance.compaction import Compaction, merge_files
from kctl_agent.storage.lake.maintenance.vacuum import remove, unused
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.table_maintenance import LEAST_FILES
from tests.conformance.given import TOPIC_ID
from tests.conftest import raising
from tests.lake_tables import FIELDS, TP, at, before_the_write, begun, filled, offsets, opened, reported, schema
from tests.table_conformance import compact

MIB = 1 << 20
DAY = 86_400.0
Moment = Callable[[Callable[[], object]], None]


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    made = opened(path, start=0)
    for start in range(0, 40, 10):
        begun(made, start, start + 10).commit()
    return made


def files(path: Path) -> set[str]:
    return set(DeltaTable(path).get_add_actions().column("path").to_pylist())


def paths(lake: LakeStorage, hours: int | None = None) -> list[str]:
    return [file.name for file in unused(lake.table, hours)]


@pytest.mark.shows("a compaction during batches and other OPTIMIZEs keeps rows, offsets and older versions")
def test_small_files_become_one_and_rows_offsets_and_versions_stay(storage: LakeStorage, path: Path) -> None:
    version = DeltaTable(path).version()
    size = sum(file.stat().st_size for file in path.glob("kctl-*/*"))

    done = compact(opened(path).table, 128 * MIB)

    assert (len(done.removed), len(done.added), sum(file.size for file in done.removed)) == (4, 1, size)
    assert done.version == version + 1
    assert DeltaTable(path).history(1)[0]["kctl"] == "compaction"
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 40, 1)
    assert offsets(path) == list(range(40))
    assert DeltaTable(path, version=version).to_pyarrow_table().num_rows == 40
    assert storage.count().rows == 40
    begun(storage, 40, 50).commit()
    assert offsets(path) == list(range(50))


def test_only_several_files_below_half_the_target_are_compacted(storage: LakeStorage, path: Path) -> None:
    compaction = Compaction(storage.table)
    sizes = sorted(file.stat().st_size for file in path.glob("kctl-*/*"))

    assert sum(map(len, compaction.small_files(2 * sizes[-1]))) < 4
    assert [len(group) for group in compaction.small_files(128 * MIB)] == [4]
    assert compaction.small_files(1) == compaction.small_files(128 * MIB, least=5) == []


@pytest.mark.shows("repeated compactions write each row only a few times")
def test_a_compacted_file_is_compacted_again_only_with_as_many_bytes_of_new_ones(storage: LakeStorage) -> None:
    compaction = Compaction(storage.table)
    written = rewritten = 0
    compaction.files = []

    for number in range(200):
        new = [TableFile(f"{number}-{each}", 20_000, {}) for each in range(LEAST_FILES)]
        written += sum(file.size for file in new)
        compaction.files += new
        for group in compaction.small_files(128 * MIB, LEAST_FILES, share=1.0):
            size = sum(file.size for file in group)
            rewritten += size
            compaction.files = [file for file in compaction.files if file not in group]
            compaction.files.append(TableFile(f"{number}-made", size, {}))

    assert written > 128 * MIB
    assert rewritten < 8 * written, "each time twice as large: log2 of 64 MiB by 1 MB, and once when it was new"
    assert len(compaction.files) < 10


@pytest.mark.shows("a compaction reads rows of any size a few megabytes at a time")
def test_rows_of_any_size_are_read_a_few_megabytes_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "READ_BYTES", MIB)
    made = opened(path, start=0)
    batch = made.begin([Advance(*TP, 1, 0, 40)])
    large = pa.table({"topic": pa.array(["t" * 100_000] * 40), "offset": pa.array(range(40), pa.int64())})
    filled(batch, large, compression="zstd", use_dictionary=False)  # 4 MB, stored in a few KB
    batch.commit(reported(batch.folder, 40))
    begun(made, 40, 50).commit()
    fitted, sizes = compaction._fitted, []

    def noted(*args: Any) -> Iterator[pa.RecordBatch]:
        for each in fitted(*args):
            sizes.append(each.nbytes)
            yield each

    monkeypatch.setattr(compaction, "_fitted", noted)

    compact(made.table)

    assert max(sizes) < 1.1 * compaction.READ_BYTES
    assert offsets(path) == list(range(50))


def test_compactions_sync_before_they_commit(
    storage: LakeStorage, path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, versions = list[set[Path]](), list[int]()
    before_the_write(monkeypatch, lambda: before.append(set(synced)))

    done = compact(storage.table, 128 * MIB, versions.append)

    [added] = files(path)
    assert {path / added, (path / added).parent, path} <= before[0]
    assert path / "_delta_log" in synced
    assert versions == [done.version]
    assert not list((path / "_kctl").iterdir())
    assert [file.name for file in (path / added).parent.iterdir()] == [(path / added).name]


def test_killed_compactions_are_swept_later(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "replace", raising(ZeroDivisionError()))
        with pytest.raises(ZeroDivisionError):
            compact(storage.table, 128 * MIB)
    assert paths(storage, 0) == []
    [left] = set(path.glob("kctl-*")) - {path / Path(file).parent for file in files(path)}

    compact(opened(path).table, 128 * MIB)

    assert not left.exists()
    assert not list((path / "_kctl").iterdir())
    assert offsets(path) == list(range(40))


def test_killed_after_the_commit_keeps_files(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "forget", raising(ZeroDivisionError()))
        with pytest.raises(ZeroDivisionError):
            compact(storage.table, 128 * MIB)
    for start in (40, 50):
        begun(storage, start, start + 10).commit()

    compact(opened(path).table, 128 * MIB)

    assert not list((path / "_kctl").iterdir())
    assert offsets(path) == list(range(60))
    assert DeltaTable(path, version=DeltaTable(path).version() - 1).to_pyarrow_table().num_rows == 60


def test_compactions_and_batches_can_overlap(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    while_it_compacts(monkeypatch, begun(opened(path), 40, 50).commit)
    compact(storage.table, 128 * MIB)

    assert offsets(path) == list(range(50))
    assert at(opened(path)) == StoredOffset(*TP, TOPIC_ID, 50, 1)

    batch = begun(storage, 50, 60)
    before_the_write(monkeypatch, lambda: compact(opened(path).table, 128 * MIB))
    batch.commit()

    assert offsets(path) == list(range(60))
    assert len(files(path)) == 2


def while_it_compacts(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Runs `change` once, after the files were listed and before any is rewritten."""
    waiting = [change]

    def overtaken(*args: Any) -> list[DataFile]:
        if waiting:
            waiting.pop()()
        return merge_files(*args)

    monkeypatch.setattr(compaction, "merge_files", overtaken)


@pytest.fixture(params=[while_it_compacts, before_the_write])
def moment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Moment:
    return functools.partial(request.param, monkeypatch)


def compacted_by_kctl(path: Path) -> None:
    compact(opened(path).table, 128 * MIB)  # by a host that took this compaction for dead


def compacted_by_delta_rs(path: Path) -> None:
    assert DeltaTable(path).optimize.compact()["numFilesRemoved"] == 4  # this once stored each row twice


def deleted(path: Path) -> None:
    DeltaTable(path).delete("offset = 3")


def with_column(path: Path) -> None:
    DeltaTable(path).alter.add_columns(Field("more", PrimitiveType("string")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (compacted_by_kctl, "another process has compacted the table"),
        (compacted_by_delta_rs, "another writer has changed the same files"),
        (deleted, "another writer has changed the same files"),
        (with_column, r"the columns of the table .* were changed meanwhile"),
    ],
)
def test_what_others_change_meanwhile_stays_and_no_row_is_doubled(
    storage: LakeStorage, path: Path, moment: Moment, change: Callable[[Path], None], words: str
) -> None:
    moment(lambda: change(path))
    left = [each for each in range(40) if change is not deleted or each != 3]

    with pytest.raises(StorageUnusable, match=words):
        compact(storage.table, 128 * MIB)

    assert offsets(path) == left
    assert not list((path / "_kctl").iterdir())
    assert len(list(path.glob("kctl-*"))) == (5 if change is compacted_by_kctl else 4)
    begun(storage, 40, 50).commit()
    compact(storage.table, 128 * MIB)
    assert offsets(path) == [*left, *range(40, 50)]
    assert len(files(path)) == 1


@pytest.mark.parametrize("step", ["delete", "update"])
def test_an_overtaken_delete_or_update_starts_over(storage: LakeStorage, path: Path, step: str) -> None:
    other, begins = opened(path), []

    def change(table: DeltaTable) -> int:
        begins.append(table.version())
        if len(begins) == 1:
            compact(other.table, 128 * MIB)
        if step == "delete":
            return int(table.delete("offset >= 30")["num_deleted_rows"])
        return int(table.update({"offset": "offset + 10"}, predicate="offset >= 30")["num_updated_rows"])

    assert storage.table.rewrite(change) == 10

    assert len(begins) == 2
    assert offsets(path) == [*range(30), *(range(40, 50) if step == "update" else ())]


def test_no_compaction_after_going_back(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(path, path.with_name("copy"))
    begun(storage, 40, 50).commit()

    def go_back(*args: Any) -> list[DataFile]:
        made = merge_files(*args)
        shutil.rmtree(path)
        shutil.copytree(copy, path)
        begun(opened(path), 40, 45).commit()  # so the entry of the same version differs
        return made

    monkeypatch.setattr(compaction, "merge_files", go_back)

    with pytest.raises(StorageUnusable, match="went back: nothing was changed"):
        compact(storage.table)

    assert offsets(path) == list(range(45))


def test_every_column_that_kafka_gives_is_as_it_was(path: Path) -> None:
    kinds = (("key", "string"), ("value", "binary"))
    header = json.loads(schema(*kinds))
    headers: Any = {"type": "array", "elementType": header, "containsNull": True}
    own = schema(*FIELDS, ("key", "binary"), ("value", "binary"), ("headers", headers))
    lake = opened(path, columns=own, start=0)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for start in (0, 2):
        batch = lake.begin([Advance(*TP, 1, start, start + 2)])
        columns = {
            "topic": pa.array(["t", "t"]),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([start, start + 1], pa.int64()),
            "timestamp": pa.array([start, None], pa.timestamp("us", "UTC")),
            "key": pa.array([None, b"\xff"], pa.binary()),
            "value": pa.array([b"", None], pa.binary()),
            "headers": pa.array([[{"key": "a", "value": None}, {"key": None, "value": b"1"}], None], kind),
        }
        filled(batch, pa.table(columns))
        batch.commit()
    before = DeltaTable(path).to_pyarrow_table().sort_by("offset")

    compact(lake.table, 128 * MIB)

    assert DeltaTable(path).to_pyarrow_table().sort_by("offset").equals(before)
    assert len(files(path)) == 1


def test_a_compaction_loses_no_row(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pq.ParquetWriter.write_table
    monkeypatch.setattr(pq.ParquetWriter, "write_table", lambda writer, rows, **more: write(writer, rows[1:], **more))
    before = files(path)

    with pytest.raises(StorageUnusable, match=r"of 40 rows .* 39 were compacted: nothing was changed"):
        compact(storage.table)

    assert files(path) == before
    assert not list((path / "_kctl").iterdir())
    assert len(list(path.glob("kctl-*"))) == 4


def test_a_file_with_a_column_that_the_table_has_not_is_not_compacted(storage: LakeStorage, path: Path) -> None:
    """A comparison by names alone would take the file for one that lacks the table's column."""
    [file, *_] = path.glob("kctl-*/*.parquet")
    pq.write_table(pq.read_table(file).rename_columns(["TOPIC", "partition", "offset", "timestamp"]), file)

    with pytest.raises(TableRefused, match="has TOPIC, and the table has no such column"):
        compact(storage.table)


def test_text_that_is_no_utf_8_and_times_as_older_engines_write_them_are_compacted_as_they_are(path: Path) -> None:
    lake = opened(path, columns=schema(("text", "string"), ("at", "timestamp")), start=0)
    for start, text in enumerate((b"\xff", b"a")):
        batch = lake.begin([Advance(*TP, 1, start, start + 1)])
        times = pa.array([start], pa.timestamp("us", "UTC"))
        rows = pa.table({"text": pa.array([text]).view(pa.string()), "at": times})
        filled(batch, rows, use_deprecated_int96_timestamps=True)
        batch.commit()

    compact(lake.table)

    [file] = files(path)
    rows = pq.read_table(path / file)
    found = zip(rows["text"].cast(pa.binary()).to_pylist(), rows["at"].cast(pa.int64()).to_pylist(), strict=True)
    assert sorted(found) == [(b"a", 1), (b"\xff", 0)]


def test_each_partition_is_compacted_whatever_its_folder_is_called(path: Path) -> None:
    lake = opened(path, columns=schema(*FIELDS, ("country", "string")), start=0, partition_by=["country"])
    for start in (0, 5):
        batch = lake.begin([Advance(*TP, 1, start, start + 5)])
        for folder in ("country=a%20b%2Fc", "country=__HIVE_DEFAULT_PARTITION__", "country=%C3%BC%25"):
            filled(batch, pa.table({"offset": pa.array(range(start, start + 5), pa.int64())}), folder)
        batch.commit()

    assert [len(group) for group in Compaction(lake.table).small_files(128 * MIB)] == [2, 2, 2]
    compact(lake.table)
    assert remove(lake.table, unused(lake.table, 0)) == 6

    assert len(files(path)) == 3
    rows = DeltaTable(path).to_pyarrow_table(columns=["country", "offset"]).to_pylist()
    for country in ("a b/c", None, "ü%"):
        assert sorted(row["offset"] for row in rows if row["country"] == country) == list(range(10))
    assert len(rows) == 30
    assert {file.split("/")[0] for file in files(path)} == {folder.name for folder in path.glob("kctl-*")}
    assert paths(lake, 0) == []


@pytest.mark.shows("vacuum keeps seven days, and files of a batch whose process is frozen")
def test_vacuum_never_removes_files_of_a_batch_in_flight_however_old(storage: LakeStorage, path: Path) -> None:
    frozen = begun(opened(path), 40, 50)
    for file in Path(frozen.folder.uri).iterdir():
        os.utime(file, (time.time() - 30 * DAY,) * 2)

    assert paths(storage) == paths(storage, 0) == []

    frozen.commit()
    assert paths(storage, 0) == []
    assert offsets(path) == list(range(50))


def test_vacuum_removes_what_writers_have_left_and_nothing_else(storage: LakeStorage, path: Path) -> None:
    old = {  # ages in days: the limit is seven for files, and one for entries of the log
        "kctl-1234/part-1.parquet": 8.0,
        "kctl-1234/_temporary/0/part-2.parquet": 8.0,
        "part-0.parquet": 8.0,
        "_delta_log/_commit_old.json.tmp": 1.1,
    }
    kept = {
        "kctl-1234/part-3.parquet": 6.0,
        "_delta_log/_commit_new.json.tmp": 0.0,
        "notes.txt": 30.0,
        "other/part-0.parquet": 30.0,
    }
    for name, days in (old | kept).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"x")
        os.utime(path / name, (time.time() - days * DAY,) * 2)

    assert set(paths(storage)) == old.keys()
    assert set(paths(storage, 0)) == {*old, "kctl-1234/part-3.parquet"}
    remove(storage.table, unused(storage.table))

    assert {name for name in old | kept if (path / name).exists()} == kept.keys()
    assert not (path / "kctl-1234" / "_temporary").exists()
    assert offsets(path) == list(range(40))


@pytest.mark.parametrize("column", ["_day", ".day"])
def test_partitions_whose_names_look_hidden_are_stored_and_kept_for_older_versions(path: Path, column: str) -> None:
    made = opened(path, columns=schema(("n", "long"), (column, "string")), start=0, partition_by=[column])
    batch = made.begin([Advance(*TP, 1, 0, 2)])
    for folder, number in (f"{column}=a", 0), (f"{column}=b", 1), (f"_temporary/0/{column}=c", 2):
        file = filled(batch, pa.table({"n": [number]}), folder)
        os.utime(file, (time.time() - 8 * DAY,) * 2)

    batch.commit()
    DeltaTable(path).delete(f"\"{column}\" = 'b'")
    remove(made.table, unused(made.table))

    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"n": 0, column: "a"}]
    before = DeltaTable(path, version=DeltaTable(path).version() - 1).to_pyarrow_table()
    assert sorted(before["n"].to_pylist()) == [0, 1]
    assert not [each for each in Path(batch.folder.uri).rglob("*") if "_temporary" in each.parts]
    assert not unused(made.table)
    assert [each.name for each in unused(made.table, 0)] == [f"{batch.folder.name}/{column}=b/part-0.parquet"]


def test_vacuum_leaves_an_update_that_is_not_committed_yet(storage: LakeStorage, path: Path) -> None:
    """An update has no plan. `--retention-hours 0` removed its file before its commit."""
    storage.table.rewrite(lambda table: int(table.update({"offset": "offset"})["num_updated_rows"]))
    [written] = files(path)
    entry = path / entry_name(DeltaTable(path).version())
    committed = entry.read_bytes()
    entry.unlink()

    remove(storage.table, unused(opened(path).table, 0))
    entry.write_bytes(committed)

    assert offsets(path) == list(range(40))
    (path / "part-left.parquet").write_bytes(b"x")
    assert "part-left.parquet" not in paths(storage, 0)
    os.utime(path / "part-left.parquet", (time.time() - 1.1 * DAY,) * 2)
    assert "part-left.parquet" in paths(storage, 0)
    assert written not in paths(storage, 0)
