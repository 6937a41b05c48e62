"""What kctl makes of an Iceberg table, refuses of one, and leaves in its folder."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

from kctl_agent.storage.base import Advance, StorageUnusable, StoredOffset
from kctl_agent.storage.lake.folder import TableRefused
from kctl_agent.storage.lake.iceberg.file_io import SyncedFileIO
from kctl_agent.storage.lake.plans import sweep
from kctl_agent.upkeep import looked_after
from tests.unit.storage.lake.iceberg.tables import NAME, Lake, folder_of
from tests.unit.storage.lake.test_storage import FIELDS, TOPIC_ID, TP, at, begun, schema

STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "date", "nullable": True, "metadata": {}}]}
LIST = {"type": "array", "elementType": "string", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}


def test_a_table_has_the_columns_of_spark_each_of_which_may_be_null(lake: Lake) -> None:
    fields = (
        ("a", "boolean"), ("b", "integer"), ("c", "long"), ("d", "float"), ("e", "double"), ("f", "date"),
        ("g", "timestamp"), ("h", "timestamp_ntz"), ("i", "string"), ("j", "binary"), ("k", "decimal(10,2)"),
        ("l", STRUCT), ("m", LIST), ("n", MAP),
    )  # fmt: skip
    lake.opened(fields=fields)
    lake.opened(fields=fields)  # and they fit it

    columns = lake.table().schema().fields
    assert [re.sub(r"\d+: ", "", f"{column.name} {column.field_type}") for column in columns] == [
        "a boolean", "b int", "c long", "d float", "e double", "f date", "g timestamptz", "h timestamp", "i string",
        "j binary", "k decimal(10, 2)", "l struct<x: optional date>", "m list<string>", "n map<string, double>",
    ]  # fmt: skip
    assert not any(column.required for column in columns)


def test_files_have_bounds_and_nulls_by_which_they_are_skipped_and_are_found_by_partition(lake: Lake) -> None:
    fields = (
        ("offset", "long"), ("at", "timestamp"), ("day", "date"), ("text", "string"), ("raw", "binary"),
        ("price", "decimal(10,2)"), ("country", "string"), ("since", "date"), ("is_new", "boolean"),
    )  # fmt: skip
    storage = lake.opened(fields=fields, partition_by=("country", "since", "is_new"))
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    batch = storage.begin([Advance(*TP, 1, 0, 2)])
    values = {
        "offset": pa.array([0, 1], pa.int64()),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(1969, 12, 31), date(2026, 1, 1)]),
        "text": pa.array(["a" * 40, "é" * 40]),
        "raw": pa.array([b"\xff" * 40, b"\0"]),
        "price": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(10, 2)),
    }
    folders = (
        "country=a%3Ab/since=2026-01-02/is_new=true",
        "country=__HIVE_DEFAULT_PARTITION__/since=1969-12-31/is_new=false",
    )
    for folder in folders:
        (folder_of(batch) / folder).mkdir(parents=True)
        pq.write_table(pa.table(values), folder_of(batch) / folder / "part-0.parquet")
    batch.commit()

    def found(where: str) -> tuple[int, int]:
        scan = lake.table().scan(where)
        return len(list(scan.plan_files())), scan.to_arrow().num_rows

    assert found("country = 'a:b'") == (1, 2)
    assert found("since = '1969-12-31' and country is null and is_new = false") == (1, 2)
    assert found("offset > 1") == found("day > '2026-01-01'") == found("text > 'ê'") == (0, 0)
    assert found("at < '2025-12-31T00:00:00+00:00'") == found("price > 1.50") == (0, 0)
    assert found("text >= 'éé'") == found("price = -2.25") == found("at is null") == (2, 2)
    assert storage.count().rows == 4
    assert storage.count().files == 2


@pytest.mark.parametrize("day", ["+10000-01-01", "0000-12-31", "-0044-03-15"])
def test_a_day_that_pyiceberg_does_not_know_is_refused(lake: Lake, day: str) -> None:
    storage = lake.opened(fields=(("offset", "long"), ("day", "date")), partition_by=["day"])
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    batch = storage.begin([Advance(*TP, 1, 0, 1)])
    for each in "2026-11-24", day:
        (folder_of(batch) / f"day={each}").mkdir(parents=True)
        pq.write_table(pa.table({"offset": [0]}), folder_of(batch) / f"day={each}" / "part-0.parquet")

    with pytest.raises(TableRefused, match=re.escape(f"a row of the batch is of {day} in day, by which the table")):
        batch.commit()

    assert not folder_of(batch).exists()
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 0, 1)


def test_partitions_whose_names_look_hidden_are_stored(lake: Lake) -> None:
    storage = lake.opened(fields=(("offset", "long"), ("_day", "string")), partition_by=["_day"])
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    batch = storage.begin([Advance(*TP, 1, 0, 1)])
    folder = folder_of(batch) / "_day=a"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"offset": [0]}), folder / "part-0.parquet")

    batch.commit()

    assert lake.table().scan().to_arrow().to_pylist() == [{"offset": 0, "_day": "a"}]


def test_columns_that_the_table_lacks_are_refused_or_added(lake: Lake) -> None:
    storage = lake.begun_at(100)
    begun(storage, 100, 110).commit()
    more = (*FIELDS, ("size", "integer"), ("inner", STRUCT))

    with pytest.raises(TableRefused, match=r"^the table sales.orders has no column size: add it"):
        lake.opened(fields=more)
    merging = lake.opened(fields=more, merge_schema=True)

    batch = merging.begin([Advance(*TP, 1, 110, 111)])
    folder_of(batch).mkdir()
    pq.write_table(
        pa.table({"offset": pa.array([110]), "size": pa.array([7], pa.int32())}), folder_of(batch) / "0.parquet"
    )
    batch.commit()
    begun(storage, 111, 112).commit()  # who runs the transform of before goes on
    rows = lake.table().scan().to_arrow()
    assert sorted(zip(rows["offset"].to_pylist(), rows["size"].to_pylist(), strict=True), key=str)[-2:] == [
        (110, 7),
        (111, None),
    ]


@pytest.mark.parametrize(
    ("fields", "partition_by", "sentence"),
    [
        ((("a", "short"),), (), "column a has the type short, which an Iceberg table cannot have: cast it"),
        ((("a", "long"), ("A", "long")), (), "there are several columns called 'a': rename them in the transform"),
        ((("a", "long"),), ("b",), "storage.partition_by names b, and the columns are a"),
        ((("a", "double"), ("b", "long")), ("a",), "storage.partition_by names a, by whose type, double, nothing"),
        ((("a", "long"),), ("a",), "storage.partition_by names every column: one must remain for the files"),
    ],
)
def test_columns_that_no_table_can_have_are_refused_before_one_is_made(
    lake: Lake, fields: tuple[tuple[str, Any], ...], partition_by: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(TableRefused, match=f"^{sentence}"):
        lake.opened(fields=fields, partition_by=partition_by)

    assert not lake.catalog.table_exists(NAME)


def bucket(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("offset", BucketTransform(8), "offset_bucket")


def by_topic(table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("topic")


def retype(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("partition", LongType())


def remove(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("timestamp")


def forget_names(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": '[{"field-id": 1, "names": ["topic"]}]'})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (bucket, r"the table sales.orders is partitioned by bucket\[8\]\(offset\): kctl only writes"),
        (by_topic, r"the table sales.orders is partitioned by \(topic\), and storage.partition_by is \(\)"),
        (retype, "column partition of the table sales.orders is long, and the batch has int"),
        (remove, "the table sales.orders has no column timestamp"),
        (forget_names, "the property schema.name-mapping.default of the table sales.orders does not have column"),
    ],
)
def test_a_table_that_others_have_changed_so_that_a_batch_does_not_fit_is_refused_at_the_commit_too(
    lake: Lake, change: Callable[[Table], None], sentence: str
) -> None:
    storage = lake.begun_at(100)
    batch = begun(storage, 100, 110)
    change(lake.table())

    with pytest.raises(TableRefused, match=f"^{sentence}"):
        batch.commit()
    with pytest.raises(TableRefused, match=f"^{sentence}"):
        lake.opened()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)


def test_tables_of_other_versions_and_in_other_folders_are_refused(lake: Lake) -> None:
    columns = Schema(NestedField(1, "topic", StringType()))
    catalog = lake.catalog
    catalog.create_namespace("sales")
    catalog.create_table(NAME, columns, location=f"file://{lake.folder}/elsewhere")
    with pytest.raises(TableRefused, match=r"file:///.*/elsewhere/.* is not below .*/orders \(storage.uri\)"):
        lake.opened()

    catalog.drop_table(NAME)
    catalog.create_table(NAME, columns, location=f"file://{lake.path}", properties={"format-version": "1"})
    with pytest.raises(TableRefused, match="has format version 1, and kctl writes version 2"):
        lake.opened()


def test_what_cannot_be_used_is_one_sentence(lake: Lake, tmp_path: Path) -> None:
    storage = lake.storage()
    lake.path.mkdir()
    (lake.path / "notes.txt").touch()
    with pytest.raises(StorageUnusable, match=r"is not empty, and the catalog has no table sales.orders: name another"):
        storage.prepare()
    (lake.path / "notes.txt").unlink()
    storage.prepare()
    with pytest.raises(StorageUnusable, match=r"the catalog has no table sales.orders .*: nothing was stored yet"):
        storage.count()

    away = Lake(tmp_path / "missing", type="sql", uri=f"sqlite:///{tmp_path}/missing/catalog.db")
    (tmp_path / "missing").mkdir()
    os.chmod(tmp_path / "missing", 0o500)
    if os.geteuid() != 0:
        with pytest.raises(StorageUnusable, match=r"or its catalog cannot be used: .*unable to open database file"):
            away.opened()
    os.chmod(tmp_path / "missing", 0o700)
    nowhere = Lake(tmp_path, type="sql", uri=f"sqlite:///{tmp_path}/none/catalog.db")
    with pytest.raises(
        StorageUnusable, match=rf"the folder {tmp_path}/none, in which .* to be made, does not exist: mkd"
    ):
        nowhere.opened()
    away.close()
    nowhere.close()


@pytest.mark.parametrize("content", [None, b""], ids=["no file", "an empty one, as other programs leave"])
def test_what_only_reads_makes_no_catalog(lake: Lake, content: bytes | None) -> None:
    file = lake.folder / "catalog.db"
    if content is not None:
        file.write_bytes(content)
    storage = lake.storage()

    storage.prepare()
    with pytest.raises(StorageUnusable, match=r"the catalog has no table sales.orders .*: nothing was stored yet"):
        storage.count()

    assert (file.read_bytes() if file.exists() else None) == content
    assert not lake.path.exists()
    lake.begun_at(100)  # another process
    assert storage.count().rows == 0


def test_a_catalog_without_tables_stays_so_where_its_properties_want_that(tmp_path: Path) -> None:
    lake = Lake(tmp_path, type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", init_catalog_tables="false")

    with pytest.raises(StorageUnusable, match="no such table: iceberg_"):
        lake.opened()

    lake.close()


def test_files_of_a_batch_that_can_never_be_committed_are_removed_and_those_of_others_stay(lake: Lake) -> None:
    storage = lake.begun_at(100)
    abandoned, stored = begun(storage, 100, 110), begun(storage, 100, 105)
    stored.commit()
    stored.write_plan(1)  # killed before it removed its plan
    in_flight = begun(storage, 105, 110)

    sweep(storage.table)

    assert not folder_of(abandoned).exists()
    assert folder_of(stored).exists()
    assert folder_of(in_flight).exists()
    in_flight.commit()
    assert lake.offsets() == list(range(100, 110))


def test_whether_a_batch_was_stored_is_unknown_once_snapshots_are_expired_and_its_files_stay(lake: Lake) -> None:
    storage = lake.begun_at(100)
    stored = begun(storage, 100, 105)
    stored.commit()
    stored.write_plan(1)
    begun(storage, 105, 110).commit()
    current = lake.table().current_snapshot()
    table = lake.table()
    others = [each.snapshot_id for each in table.snapshots() if each != current]
    table.maintenance.expire_snapshots().by_ids(others).commit()

    sweep(storage.table)

    assert folder_of(stored).exists()
    assert lake.offsets() == list(range(100, 110))


def test_what_a_commit_writes_is_on_the_disk_before_the_catalog_names_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = lake.begun_at(100)
    batch = begun(storage, 100, 110)
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", noted)
    batch.commit()

    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
    needed = [table.metadata_location, snapshot.manifest_list, *manifests]
    assert {each.removeprefix("file://") for each in needed} <= set(synced)
    assert str(folder_of(batch) / "part-0.parquet") in synced


def test_a_disk_that_takes_a_part_of_the_metadata_fails_the_commit_and_the_table_stays_whole(lake: Lake) -> None:
    storage = lake.begun_at(100)
    lake.table().transaction().set_properties(large="x" * 300_000).commit_transaction()
    batch = begun(storage, 100, 110)

    with of_at_most(200_000), pytest.raises(StorageUnusable, match="File too large"):
        batch.commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    assert lake.offsets() == []
    batch.commit()
    assert lake.offsets() == list(range(100, 110))


@contextmanager
def of_at_most(size: int) -> Iterator[None]:
    """No file of this process gets larger: like a disk that is full the kernel writes what there is room for, returns
    how much that was, and fails the next write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_are_found_by_every_way_in_which_engines_write_a_location(tmp_path: Path) -> None:
    path, io = tmp_path / "a b%20c", SyncedFileIO({SyncedFileIO.FOLDER: str(tmp_path)})
    for prefix in ("", "file:", "file://"):
        with io.new_output(f"{prefix}{path}").create(overwrite=True) as stream:
            stream.write(prefix.encode())
        with io.new_input(f"{prefix}{path}").open() as found:
            assert found.read() == prefix.encode()
    with pytest.raises(OSError, match="s3://a/b is no file of this machine"):
        io.new_input("s3://a/b").exists()


def test_upkeep_is_that_of_its_dead_letters_alone(lake: Lake) -> None:
    storage = lake.begun_at(100)
    begun(storage, 100, 110).commit()
    assert looked_after(storage) == ([], [])

    dead_letters = storage.beside()
    dead_letters.prepare()
    dead_letters.fit(schema(*FIELDS))

    assert [str(table.folder) for table in storage.tables()] == [str(dead_letters.folder)]
    assert looked_after(storage) == ([], [])
