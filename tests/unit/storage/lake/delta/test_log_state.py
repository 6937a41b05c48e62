"""Reads a table's log. Stores are in memory, but tables are made in folders, because delta-rs cannot open stores."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.lake.dead_letters.requeue import numbered_files
from kctl_agent.storage.lake.delta import checkpoint
from kctl_agent.storage.lake.delta.log import LAST_CHECKPOINT, LogUnreadable, actions, entry_name, log_files, own_file
from kctl_agent.storage.lake.delta.log_reader import DeltaLogReader
from kctl_agent.storage.lake.delta.log_state import LogState, NoTable
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.delta.table_counts import count
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import FIELDS, GROUP, TOPIC_ID, TP, begun, offsets, opened, rows, schema
from tests.table_conformance import compact


@pytest.mark.parametrize("is_cleaned_up", [False, True])
def test_what_delta_rs_reads_of_a_log_is_read(filled: LakeStorage, path: Path, is_cleaned_up: bool) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    if is_cleaned_up:
        DeltaTable(path).create_checkpoint()
        shutil.move(path / "_delta_log" / f"{0:020}.json", path.parent)
    begun(filled, 10, 20).commit()

    ours, theirs = LogState.read(LocalFolder(path)), DeltaTable(path)

    assert (ours.version, ours.id) == (theirs.version(), str(theirs.metadata().id))
    assert ours.configuration == theirs.metadata().configuration == {"delta.logRetentionDuration": "interval 1 days"}
    assert ours.partition_columns == theirs.metadata().partition_columns == []
    assert ours.fields == json.loads(theirs.schema().to_json())["fields"]
    assert ours.protocol["minWriterVersion"] == theirs.protocol().min_writer_version
    assert ours.features == {*(theirs.protocol().writer_features or ())}
    assert len(ours.transactions) == 4
    for name in (*ours.transactions, "none"):
        assert ours.transactions.get(name) == theirs.transaction_version(name)


def test_a_checkpoint_in_parts_counts_once_all_of_them_are_there(filled: LakeStorage, path: Path) -> None:
    """Delta's own writer writes the parts one by one."""
    DeltaTable(path).create_checkpoint()
    version, log = DeltaTable(path).version(), path / "_delta_log"
    [whole] = log_files(LocalFolder(path)).checkpoint_files
    rows = pq.ParquetFile(path / whole).read()
    (path / whole).unlink()
    parts = [log / f"{version:020}.checkpoint.{number:010}.{2:010}.parquet" for number in (1, 2)]
    pq.write_table(rows.slice(0, 2), parts[0])

    assert log_files(LocalFolder(path)).checkpoint == -1
    assert LogState.read(LocalFolder(path)).version == version

    pq.write_table(rows.slice(2), parts[1])
    for entry in log.glob("*.json"):
        entry.unlink()
    assert log_files(LocalFolder(path)).checkpoint_files == tuple(f"_delta_log/{part.name}" for part in parts)
    assert LogState.read(LocalFolder(path)).transactions["kctl/cluster-1/payments%2Feu/t/0"] == 10
    assert filled.count().rows == 10


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_line_ends_of_unicode_end_no_line_of_a_log(filled: LakeStorage, path: Path, character: str) -> None:
    """Other writers leave them unescaped in a file's statistics."""
    topic = pa.array([f"a{character}b"])
    write_deltalake(path, rows([1]).set_column(0, "topic", topic), mode="append")
    version = DeltaTable(path).version()

    begun(filled, 10, 20).commit()

    assert offsets(path) == sorted([*range(20), 1])
    [added] = [action["add"] for action in actions(LocalFolder(path), version) if "add" in action]
    assert json.loads(added["stats"])["minValues"]["topic"] == f"a{character}b"


@pytest.mark.parametrize("damage", [lambda _: b"", lambda content: content[:-100], lambda content: bytes(len(content))])
def test_a_checkpoint_that_is_damaged_is_passed_over_and_named(
    filled: LakeStorage, path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    DeltaTable(path).create_checkpoint()
    begun(filled, 10, 20).commit()
    DeltaTable(path).create_checkpoint()
    begun(filled, 20, 30).commit()
    [first, second] = sorted((path / "_delta_log").glob("*.checkpoint.parquet"))
    second.write_bytes(damage(second.read_bytes()))

    begun(opened(path), 30, 40).commit()
    assert f"{path} is read without a checkpoint, for {second.name} of its log cannot be read" in caplog.text
    assert first.name not in caplog.text

    first.write_bytes(b"")
    begun(opened(path), 40, 50).commit()
    checkpoint.main(str(path), None)  # delta-rs also reads from this checkpoint on
    assert offsets(path) == list(range(50))


def test_a_log_that_lacks_an_entry_or_a_whole_checkpoint_is_rejected(filled: LakeStorage, path: Path) -> None:
    begun(filled, 10, 20).commit()
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


SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "v", "type": "long", "nullable": True, "metadata": {}}]})


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    table = LakeTable(LocalFolder(tmp_path / "orders"))
    table.prepare()
    table.fit(SCHEMA, [])
    return table


def append(table: LakeTable, *actions: Any) -> None:
    with table.state() as state:
        version = state.version + 1
    lines = (action if isinstance(action, str) else json.dumps(action) for action in actions)
    (Path(table.folder.uri) / entry_name(version)).write_text("".join(f"{line}\n" for line in lines if line))


def add(path: str, file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    return {"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}}


def metadata(**others: Any) -> dict[str, Any]:
    form = {"provider": "parquet", "options": {}}
    made = {"id": "x", "format": form, "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}}
    return {"metaData": {**made, **others}}


@pytest.mark.shows("a forged log cannot name foreign files; an invalid action is reported with its entry")
@pytest.mark.parametrize("form", ["../private/rows.parquet", "%2e%2e/private/rows.parquet", "{}", "file://{}"])
def test_files_of_others_are_neither_compacted_nor_requeued(table: LakeTable, tmp_path: Path, form: str) -> None:
    own, others = tmp_path / "orders" / "own.parquet", tmp_path / "private" / "rows.parquet"
    others.parent.mkdir()
    for file in (own, others):
        pq.write_table(pa.table({"v": pa.array([1], pa.int64())}), file)
    append(table, add("own.parquet", own), add(form.format(others), others))

    with pytest.raises(StorageUnusable, match=r"rows.parquet', which is not in its folder"):
        compact(table, 1 << 20)
    with pytest.raises(StorageUnusable, match="which is not in its folder"), table.latest() as latest:
        numbered_files(latest)

    assert not list((tmp_path / "orders").glob("kctl-*"))
    assert others.exists()


@pytest.mark.parametrize("path", ["kctl-0/a=1/b..c.parquet", "at=2026-11-24 10%3A00:00/x.parquet", "..a/x"])
def test_a_file_of_the_table_itself_is_none_of_others(path: str) -> None:
    assert own_file(path) == path.replace("%3A", ":")


DEEP = "[" * 100_000 + "]" * 100_000
ACTIONS = {
    "nothing": "",
    "zeros, as a power cut leaves them": "\0" * 200,
    "a part": '{"commitInfo":{}}\n{"txn":{"appId":"a","ver',
    "nested too deeply": f'{{"a": {DEEP}}}',
    "a number of 5,000 digits": f'{{"txn": {{"appId": "x", "version": {"9" * 5000}}}}}',
    "no object": "5",
    "a protocol without the version of writers": {"protocol": {"minReaderVersion": 1}},
    "features that are no texts": {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": [{}]}},
    "a configuration that is a text": metadata(configuration="abc"),
    "a configuration of numbers": metadata(configuration={"delta.checkpointInterval": 5}),
    "a schema that is no list": metadata(schemaString='{"fields": 5}'),
    "a schema nested too deeply": metadata(schemaString=f'{{"fields": {DEEP}}}'),
    "a column without a type": metadata(schemaString='{"fields": [{"name": "v"}]}'),
    "an id that is none": metadata(id=["x"]),
    "no id": {"metaData": {"schemaString": SCHEMA}},
    "partitions that are no texts": metadata(partitionColumns=[{}]),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_an_entry_that_is_none_makes_the_table_unusable_by_its_name(table: LakeTable, action: Any) -> None:
    append(table, action)

    for each in (table, LakeTable(table.folder)):
        with pytest.raises(StorageUnusable, match=r"00000000000000000001.json of its log cannot be read"):
            each.fit(SCHEMA, [])


@pytest.mark.parametrize(
    "action",
    [
        {"add": {"path": "a", "size": "large"}},
        {"add": {"path": 5, "size": 5}},
        {"add": {"path": "a", "size": 5, "stats": DEEP}},
        {"add": {"path": "a", "size": 5, "stats": "no JSON"}},
        {"add": {"size": 5}},
        {"remove": {}},
    ],
    ids=range(6),
)
def test_a_file_that_is_described_as_none_is_not_counted(table: LakeTable, action: Any) -> None:
    append(table, action)

    with pytest.raises(LogUnreadable, match=r"00000000000000000001.json of its log cannot be read"):
        count(table.folder, 1)


def test_an_interval_of_checkpoints_of_5000_digits_is_none(table: LakeTable) -> None:
    append(table, metadata(configuration={"delta.checkpointInterval": "9" * 5000}))

    table.commit("x", lambda _: None, {"a": 1})

    with table.state() as state:
        assert state.transactions == {"a": 1}


NEWEST = 3000


@pytest.fixture
def with_table(folder: S3Folder, path: Path) -> S3Folder:
    opened(path)
    folder.write(entry_name(0), (path / entry_name(0)).read_bytes())
    return folder


@pytest.fixture
def in_store(with_table: S3Folder) -> LakeStorage:
    storage = LakeStorage(with_table)
    storage.fit(schema(*FIELDS))
    storage.bind(GROUP)
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    return storage


def test_only_a_logs_newest_part_is_listed(with_table: S3Folder, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(path).create_checkpoint()
    [checkpoint] = (path / "_delta_log").glob("*.checkpoint.parquet")
    for version in range(NEWEST + 1):
        with_table.write(entry_name(version), b"damaged")
    with_table.write(f"_delta_log/{NEWEST:020}.checkpoint.parquet", checkpoint.read_bytes())
    made, listed, reader = S3Folder._file, list[str](), DeltaLogReader(with_table)

    def noted(folder: S3Folder, found: Any) -> Any:
        listed.append(found["path"])
        return made(folder, found)

    monkeypatch.setattr(S3Folder, "_file", noted)

    for size in (1, 2):
        with_table.write(LAST_CHECKPOINT, json.dumps({"version": NEWEST, "size": size}).encode())
        listed.clear()
        assert reader.newest().version == NEWEST
        assert len(listed) < 20


@pytest.mark.parametrize("pointer", [b"", b"\0\0", b"[]", b'{"version": "x"}', b'{"version": 70}'])
def test_a_damaged_or_wrong_pointer_is_passed_over(with_table: S3Folder, path: Path, pointer: bytes) -> None:
    DeltaTable(path).create_checkpoint()
    for file in (path / "_delta_log").glob("*"):
        with_table.write(f"_delta_log/{file.name}", file.read_bytes())
    with_table.write(LAST_CHECKPOINT, pointer)

    assert LogState.read(with_table).log.checkpoint == 0


def test_a_log_moving_on_is_given_up(in_store: LakeStorage, folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    read, times = LogState.read, []

    def overtaken(table: Folder) -> LogState:
        times.append(1)
        folder.write(LAST_CHECKPOINT, b"{}")
        assert len(times) < 100
        return read(table)

    monkeypatch.setattr(LogState, "read", overtaken)

    with pytest.raises(LogUnreadable, match="checkpoints of its log are written faster than it can be read"):
        DeltaLogReader(folder).newest()


def test_what_a_commit_asks_of_a_store_does_not_grow(in_store: LakeStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    def noted(name: str, request: Callable[..., Any], *args: Any, **more: Any) -> Any:
        requests.append(name)
        return request(*args, **more)

    for name in ("get", "head", "put", "list", "copy", "delete"):
        monkeypatch.setattr(obstore, name, partial(noted, name, getattr(obstore, name)))

    for start in range(100, 140, 10):
        requests.clear()
        in_store.advance_offsets([Advance(*TP, 1, start, start + 10)])

    assert sorted(requests) == ["get"] * 5 + ["list"] * 4 + ["put"]
