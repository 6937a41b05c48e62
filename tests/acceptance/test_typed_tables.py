"""Avro of a real registry becomes typed rows or dead letters, as fastavro reads it: batches of Spark, without Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.lone_spark import found_by
from tests.servers.schema_registry import guid_of

pytestmark = pytest.mark.timeout(400)


@pytest.mark.shows("Avro of several schemas becomes typed rows of a table, and each bad value a dead letter")
@pytest.mark.shows("a table's schema follows the registry: fields are added or left out, and no type is guessed")
@pytest.mark.shows("while the registry is away, messages with known schemas are stored; none becomes a dead letter")
def test_each_value_is_a_typed_row_or_a_dead_letter(short_dir: Path) -> None:
    found = found_by("typed_tables.py", short_dir)

    mixed_is_right(found["mixed"])
    evolution_is_right(found["evolving"], found["merged"])
    widened_is_right(found["widened"])
    outages_are_waited_for(found["away"])
    assert found["shared"] == {
        "rows": [{"id": "a", "_at": 0}, {"id": "b", "_at": 1}],
        "dead": [],
    }, "a schema that a requeue has learnt is known to the batch"
    assert found["transformed"]["rows"] == [{"id": "a", "value": 0, "_at": 0}, {"id": "c", "value": 4, "_at": 2}]
    assert sorted(at for at, _ in found["transformed"]["dead"]) == [1, 3]
    unusable_schemas_are_named(found["unusable"])
    assert found["texts"] == ["b'{}'"] * 6 + ["None"]
    assert found["every_type"] == []


def mixed_is_right(found: dict[str, Any]) -> None:
    third, fourth, fifth = found["ids"]
    reader = "version 3 of mixed-value cannot read it"
    assert found["rows"] == found["expected"]
    assert found["dead"] == [
        [5, "UnknownSchema: the schema registry does not know id 4711"],
        [6, f"UnknownSchema: the schema registry does not know GUID {guid_of(999)}"],
        [7, f"BadRecord: not shop.Order (id {third})"],
        *([at, "NotFramed: no schema id precedes it, and no header names one"] for at in (8, 9, 10)),
        [11, f"SchemaMismatch: {reader}: id"],
        [12, f"SchemaMismatch: {reader}: the record is shop.Payment"],
    ], (fourth, fifth)
    assert found["asked_again"] == 0
    assert found["again"] == found["dead"], "requeued, they die for the same reasons"


def evolution_is_right(left_out: dict[str, Any], merged: dict[str, Any]) -> None:
    first, second = {"id": "a", "item": {"sku": "x"}, "_at": 0}, {"id": "b", "item": {"sku": "y"}}
    assert left_out["rows"] == [first, {**second, "_at": 1}, {**second, "_at": 2}]
    assert left_out["events"] == [
        "the table does not have item.note, value of version 2 of evolving-value; storage.merge_schema adds columns"
    ]
    assert merged["rows"] == [{**first, "value": None}, *({**second, "value": 3, "_at": at} for at in (1, 2))]
    assert merged["events"] == ["the table does not have item.note of version 2 of merged-value"]


def widened_is_right(found: dict[str, Any]) -> None:
    assert found["refused"] == (
        "version 2 of widened-value does not fit the table: column value is integer in the table and long in the "
        "schema; register a version that fits, change the column in workers.transform, or fill another table "
        "(storage.uri)"
    )
    assert found["then"] is None
    assert found["rows"] == [{"id": "a", "value": 1, "_at": 0}]
    assert [at for at, error in found["dead"] if error.startswith("SchemaMismatch: version 3 of widened-value")] == [1]


def outages_are_waited_for(found: dict[str, Any]) -> None:
    assert "HTTP 500" in found["before"]
    assert found["absent"] == (
        "no columns can be made: UnknownSchema: the schema registry does not know subjects/away-value/versions/latest"
    )
    words = {"silent": "timed out", "401": "HTTP 401", "404": "HTTP 404", "garbage": "other than a schema"}
    for name, expected in words.items():
        known, new = found[name]
        assert known is None, "a schema that is known needs no registry"
        assert expected in new, name
    assert [row["id"] for row in found["rows"]] == ["a"] * 5 + ["b"]
    assert found["dead"] == []


def unusable_schemas_are_named(found: dict[str, str]) -> None:
    assert found["plain"] == "plain-value is not a record, whose fields would be the columns of the table"
    assert "a schema of type PROTOBUF, and kctl decodes only Avro" in found["proto"]
    assert found["taken"] == "taken-value has a field _kafka, a name that kctl needs: rename it"
    assert found["twice"] == "twice-value has a field ID, and another whose name differs only in case"
    assert "version 1 of endless-value cannot become columns" in found["endless"]
    assert "void" in found["nothing"]
    assert "the topics have different records (shop.left, shop.right)" in found["differing"]
