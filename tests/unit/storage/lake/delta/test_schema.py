import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Schema
from deltalake.table import TableAlterer

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.lake.delta.schema import fitted
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import FIELDS, TOPIC_ID, TP, at, begun, offsets, opened, schema
from tests.table_conformance import compact


def field(name: str, type_: Any, *, nullable: bool = True, metadata: Any = None) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata or {}}


def columns(**types: Any) -> list[dict[str, Any]]:
    return [field(name, type_) for name, type_ in types.items()]


def struct(*fields: dict[str, Any], **types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [*fields, *columns(**types)]}


def array(of: Any, *, null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": null}


def map_(key: Any, value: Any, *, null: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": null}


def of_fields(*fields: dict[str, Any]) -> str:
    return json.dumps(struct(*fields))


AMOUNT = ("amount", "double")
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "a > 3"}})}
OPTIONAL, REQUIRED = struct(a="long"), struct(field("a", "long", nullable=False))
BOUNDED = struct(field("a", "long", metadata=INVARIANT))


@pytest.mark.parametrize(
    ("there", "wanted", "made", "left_out"),
    [
        ({"a": "string"}, {"a": "string", "b": "long"}, {"a": "string"}, ["b"]),
        ({"a": "string", "b": "long"}, {"a": "string"}, {"a": "string"}, []),
        ({"a": "long", "b": "double"}, {"a": "integer", "b": "float"}, {"a": "long", "b": "double"}, []),
        ({"a": "long"}, {"A": "long"}, {"a": "long"}, []),
        ({"a": array(struct(x="long"))}, {"a": array(struct(x="integer", y="string"))}, None, ["a.element.y"]),
        ({"a": map_("string", struct(x="long", y="long"))}, {"a": map_("string", struct(x="long"))}, None, []),
    ],
)
def test_columns_and_fields_that_the_table_lacks_are_left_out_and_numbers_widened(
    there: dict[str, Any], wanted: dict[str, Any], made: dict[str, Any] | None, left_out: list[str]
) -> None:
    found = fitted(columns(**there), columns(**wanted), may_add=False)

    assert found == (columns(**(there if made is None else made)), left_out)


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        ("integer", "long", "column a is integer in the table and long in the schema"),
        ("string", struct(x="long"), "column a is string in the table and struct in the schema"),
        (array("string"), array("long"), "column a.element is string in the table and long in the schema"),
        (map_("string", "integer"), map_("string", "long"), "column a.value is integer in the table and long in"),
        (array("string"), map_("string", "string"), "column a is array in the table and map in the schema"),
    ],
)
def test_a_type_that_the_table_cannot_hold_is_rejected_by_its_place(there: Any, wanted: Any, words: str) -> None:
    with pytest.raises(TableRefused, match=words):
        fitted(columns(a=there), columns(a=wanted), may_add=True)


def table_of(path: Path, *fields: dict[str, Any]) -> LakeStorage:
    DeltaTable.create(path, Schema.from_json(of_fields(*fields)))
    storage = LakeStorage(LocalFolder(path))
    storage.prepare()
    return storage


@pytest.mark.shows("a restored or replaced table is detected; unsupported features are rejected by name")
@pytest.mark.parametrize(
    ("there", "given", "place"),
    [
        (REQUIRED, OPTIONAL, "s.a"),
        (array("long", null=False), array("long"), "s.element"),
        (array(REQUIRED), array(OPTIONAL), "s.element.a"),
        (map_("string", "long", null=False), map_("string", "long"), "s.value"),
        (map_("string", REQUIRED), map_("string", OPTIONAL), "s.value.a"),
        (map_(REQUIRED, "long"), map_(OPTIONAL, "long"), "s.key.a"),
    ],
)
def test_nullable_columns_do_not_fit_those_that_are_not(path: Path, there: Any, given: Any, place: str) -> None:
    storage = table_of(path, field("s", there), field("n", "long"))

    with pytest.raises(TableRefused, match=f"column {place} of the table .* must not be null"):
        storage.fit(of_fields(field("s", given)))
    storage.fit(of_fields(field("s", there)))
    storage.fit(of_fields(field("n", "long")))


@pytest.mark.parametrize("of", [BOUNDED, array(BOUNDED), map_("long", BOUNDED)])
def test_an_invariant_inside_of_a_column_is_rejected(path: Path, of: Any) -> None:
    with pytest.raises(TableRefused, match="has invariants, which kctl cannot check"):
        table_of(path, field("s", of)).fit(of_fields(field("s", of)))


def test_new_columns_stay_where_they_may_be_added_but_not_new_fields_of_structs() -> None:
    there, wanted = columns(a=struct(x="long")), columns(a=struct(x="long", y="long"), b="string")

    assert fitted(there, wanted, may_add=True) == (columns(a=struct(x="long"), b="string"), ["a.y"])


def merging(path: Path) -> LakeStorage:
    return opened(path, merge_schema=True)


def names(path: Path) -> list[str]:
    return [field.name for field in DeltaTable(path).schema().fields]


@pytest.mark.shows("`storage.merge_schema` adds new columns once, next to workers that lack them")
def test_new_columns_are_added_and_rows_before_have_null_in_them(filled: LakeStorage, path: Path) -> None:
    with pytest.raises(TableRefused, match=r"has no column amount: .* or set storage.merge_schema"):
        filled.fit(schema(*FIELDS, AMOUNT))

    lake = merging(path)
    lake.fit(schema(*FIELDS, AMOUNT))
    version = DeltaTable(path).version()
    lake.fit(schema(*FIELDS, AMOUNT))

    assert names(path) == [*(name for name, _ in FIELDS), "amount"]
    assert DeltaTable(path).version() == version, "what is there is not added again"
    assert at(lake) == StoredOffset(*TP, TOPIC_ID, 10, 1)
    assert DeltaTable(path).to_pyarrow_table()["amount"].null_count == 10


def test_a_worker_of_before_goes_on_and_its_batch_in_flight_is_no_conflict(filled: LakeStorage, path: Path) -> None:
    in_flight = begun(filled, 10, 20)

    merging(path).fit(schema(*FIELDS, AMOUNT))
    in_flight.commit()
    filled.fit(schema(*FIELDS))
    begun(filled, 20, 30).commit()
    compact(filled.table, 128 << 20)

    assert offsets(path) == list(range(30))
    assert DeltaTable(path).to_pyarrow_table()["amount"].null_count == 30


def test_workers_add_the_same_column_once(filled: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_bad_types_add_nothing(filled: LakeStorage, path: Path, fields: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(TableRefused, match=reason):
        merging(path).fit(schema(*fields))

    assert "amount" not in names(path)


@pytest.mark.parametrize("kind", ["interval day to second", "void", "variant", "nonsense"])
def test_an_unreadable_type_is_rejected_everywhere(filled: LakeStorage, path: Path, tmp_path: Path, kind: str) -> None:
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
