from __future__ import annotations

from typing import Any

import pytest

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.lake.delta.schema import fitted


def columns(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in types.items()]


def struct(**types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": columns(**types)}


def array(type_: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": type_, "containsNull": True}


def mapping(type_: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": type_, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("there", "wanted", "made", "left_out"),
    [
        ({"a": "string"}, {"a": "string", "b": "long"}, {"a": "string"}, ["b"]),
        ({"a": "string", "b": "long"}, {"a": "string"}, {"a": "string"}, []),
        ({"a": "long", "b": "double"}, {"a": "integer", "b": "float"}, {"a": "long", "b": "double"}, []),
        ({"a": "long"}, {"A": "long"}, {"a": "long"}, []),
        (
            {"a": array(struct(x="long"))},
            {"a": array(struct(x="integer", y="string"))},
            {"a": array(struct(x="long"))},
            ["a.element.y"],
        ),
        ({"a": mapping(struct(x="long", y="long"))}, {"a": mapping(struct(x="long"))}, None, []),
    ],
)
def test_columns_and_fields_that_the_table_lacks_are_left_out_and_numbers_widened(
    there: dict[str, Any], wanted: dict[str, Any], made: dict[str, Any] | None, left_out: list[str]
) -> None:
    found = fitted(columns(**there), columns(**wanted), may_add=False)

    assert found == (columns(**(there if made is None else made)), left_out)


def test_new_columns_stay_where_they_may_be_added_but_not_new_fields_of_structs() -> None:
    wanted = columns(a=struct(x="long", y="long"), b="string")

    made, left_out = fitted(columns(a=struct(x="long")), wanted, may_add=True)

    assert made == columns(a=struct(x="long"), b="string")
    assert left_out == ["a.y"]


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        ("integer", "long", "column a is integer in the table and long in the schema"),
        ("string", struct(x="long"), "column a is string in the table and struct in the schema"),
        (array("string"), array("long"), "column a.element is string in the table and long in the schema"),
        (mapping("integer"), mapping("long"), "column a.value is integer in the table and long in the schema"),
        (array("string"), mapping("string"), "column a is array in the table and map in the schema"),
    ],
)
def test_a_type_that_the_table_cannot_hold_is_rejected_by_its_place(there: Any, wanted: Any, words: str) -> None:
    with pytest.raises(TableRefused, match=words):
        fitted(columns(a=there), columns(a=wanted), may_add=True)
