from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import FIELDS, TOPIC_ID, TP, at, begun, offsets, opened, schema
from tests.table_conformance import compact

AMOUNT = ("amount", "double")


def merging(path: Path) -> LakeStorage:
    return opened(path, merge_schema=True)


def names(path: Path) -> list[str]:
    return [field.name for field in DeltaTable(path).schema().fields]


@pytest.mark.shows("`storage.merge_schema` adds new columns once, next to workers that lack them")
def test_new_columns_are_added_and_rows_before_have_null_in_them(storage: LakeStorage, path: Path) -> None:
    lake = merging(path)
    lake.fit(schema(*FIELDS, AMOUNT))
    version = DeltaTable(path).version()
    lake.fit(schema(*FIELDS, AMOUNT))

    assert names(path) == [*(name for name, _ in FIELDS), "amount"]
    assert DeltaTable(path).version() == version, "what is there is not added again"
    assert at(lake) == StoredOffset(*TP, TOPIC_ID, 10, 1)
    assert DeltaTable(path).to_pyarrow_table()["amount"].null_count == 10


def test_a_worker_of_before_goes_on_and_its_batch_in_flight_is_no_conflict(storage: LakeStorage, path: Path) -> None:
    in_flight = begun(storage, 10, 20)

    merging(path).fit(schema(*FIELDS, AMOUNT))
    in_flight.commit()
    storage.fit(schema(*FIELDS))
    begun(storage, 20, 30).commit()
    compact(storage.table, 128 << 20)

    assert offsets(path) == list(range(30))
    assert DeltaTable(path).to_pyarrow_table()["amount"].null_count == 30


def test_workers_add_the_same_column_once(storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, waiting = TableAlterer.add_columns, [merging(path)]

    def overtaken(self: TableAlterer, *fields: object) -> None:
        if waiting:
            waiting.pop().fit(schema(*FIELDS, AMOUNT))
        add(self, *fields)  # type: ignore[arg-type]

    monkeypatch.setattr(TableAlterer, "add_columns", overtaken)
    merging(path).fit(schema(*FIELDS, AMOUNT))

    assert names(path).count("amount") == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("offset", "string"), AMOUNT], "column offset of the table .* is long, and the batch has string"),
        ([("Offset", "long"), AMOUNT], "has no column Offset"),
    ],
)
def test_bad_types_add_nothing(storage: LakeStorage, path: Path, fields: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(TableRefused, match=reason):
        merging(path).fit(schema(*fields))

    assert "amount" not in names(path)


@pytest.mark.parametrize("kind", ["interval day to second", "void", "variant", "nonsense"])
def test_an_unreadable_type_is_rejected_everywhere(storage: LakeStorage, path: Path, tmp_path: Path, kind: str) -> None:
    inside: Any = json.loads(schema(("odd", kind)))
    listed: Any = {"type": "array", "elementType": inside, "containsNull": True}
    for unfit in (kind, inside, listed):
        with pytest.raises(TableRefused, match=f"column x has the type {kind}, which a Delta table cannot have"):
            merging(path).fit(schema(*FIELDS, ("x", unfit)))
        with pytest.raises(TableRefused, match=f"has the type {kind}"):
            LakeStorage(LocalFolder(tmp_path / "new")).fit(schema(("x", unfit)))

    assert names(path) == [name for name, _ in FIELDS]
    listed["elementType"] = "timestamp_ntz"
    merging(path).fit(schema(*FIELDS, ("x", "decimal(38,2)"), ("y", listed)))
    assert names(path) == [*(name for name, _ in FIELDS), "x", "y"]


def test_without_the_setting_new_columns_are_rejected(storage: LakeStorage, path: Path) -> None:
    with pytest.raises(TableRefused, match=r"has no column amount: .* or set storage.merge_schema"):
        storage.fit(schema(*FIELDS, AMOUNT))
