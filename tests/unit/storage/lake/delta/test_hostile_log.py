from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.dead_letters.requeue import numbered_files
from kctl_agent.storage.lake.delta.log import LogUnreadable, entry_name, own_file
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.delta.table_counts import count
from kctl_agent.storage.lake.folder import LocalFolder
from tests.table_conformance import compact

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
    (Path(table.folder.uri) / entry_name(version)).write_text("".join(f"{line}\n" for line in lines))


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

    with pytest.raises(StorageUnusable, match=r"00000000000000000001.json of its log cannot be read"):
        table.fit(SCHEMA, [])


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
        assert state.transaction_version("a") == 1
