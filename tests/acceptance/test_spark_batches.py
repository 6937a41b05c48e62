"""Each message of a batch becomes a row or a dead letter, however the transform marks it, and each Avro value as it is
read by fastavro; otherwise nothing is stored or removed: batches of Spark, without Kafka."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.requeued_rows import MANY
from tests.servers.schema_registry import guid_of

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes(shared_dir: Path) -> Any:
    command = [sys.executable, str(Path(__file__).with_name("spark_batches.py")), str(shared_dir)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)


@pytest.fixture
def found(outcomes: Any) -> Any:
    return outcomes["marking"]


@pytest.mark.shows("a partition value too long for a folder's name is rejected before the batch is stored")
@pytest.mark.shows("NUL, invalid UTF-8 and Hive's name of null are stored in a partition column as U+FFFD or null")
def test_each_message_is_a_row_or_a_dead_letter_or_the_batch_is_rejected(found: Any) -> None:
    assert found["none"] == {"rows": [0, 1, 2, 3], "dead": []}, "of any timestamp and value"
    assert found["dropped"] == {"rows": [], "dead": []}
    assert found["marked"] == {"rows": [0, 2], "dead": [[1, "no \ufffd"], [3, "no \ufffd"]]}
    assert "marks every row: its column _kctl_error is never null" in found["every"]["error"]
    for name in ("moved", "lost"):
        assert "of them are not in the batch: marked rows must keep topic, partition, offset" in found[name]["error"]
    assert sorted(found["partitions"]["rows"]) == [0, 1, 2, 3]
    assert sorted(found["example"]["rows"]) == [0, 0, 1, 3], "a row for each item"
    assert found["example"]["dead"] == [[2, "it is no JSON order"]]
    assert found["unfit"] == ["a\ufffdb", "\ufffd", "\ufffd", None, None]
    for name, size in (("long", 248), ("long_escaped", 249)):
        assert (
            f"{size} bytes in country, by which the table is partitioned, but the name of a folder has room for 247"
            in (found[name]["error"])
        )
        assert found[name]["left"] == []
    for case, count in ("lost_rows", "1 row"), ("lost_dead_letters", "3 rows"):
        why, stored = found[case]
        assert why.startswith(f"Spark has written {count} into "), case
        assert ", but the files there have 0: nothing was stored" in why, case
        assert (stored["rows"], stored["stored"]) == (0, 0), case
    assert found["lost_dead_letters"][1]["dead"] == 0
    why, stored = found["lost_put_back"]
    assert why is not None, "the session is set to ignore files that are gone"
    assert stored == {"rows": 1, "stored": 4, "dead": 3}
    assert found["tried_again"] == {"rows": [0], "dead": [[1, "no"], [2, "no"], [3, "no"]]}, "x and y of the first try"


@pytest.mark.shows("a JVM names files by UTF-8 if the machine's locale is another")
def test_a_jvm_of_kctl_has_utf8_for_names_and_all_else_the_locale_of_the_machine(found: Any) -> None:
    assert found["locales"] == ["UTF-8", "C", "C"]


@pytest.mark.shows("a transform that drops offsets or moves records is rejected")
def test_a_transform_that_drops_offsets_or_moves_records_is_rejected(found: Any) -> None:
    moves, drops, sets = found["refused"]

    assert moves.startswith("the transform shuffles moves records (Repartition);")
    assert drops.startswith("the transform drops_offsets drops offset; it must")
    assert sets.startswith("the transform sets_what_is_static cannot set spark.sql.warehouse.dir: Spark fixes it")


@pytest.mark.shows("dead letters of a table go through Spark again unchanged, each copy of a message separately")
def test_thousands_are_requeued_unchanged_each_copy_of_a_message_separately(found: Any) -> None:
    found = found["requeued"]
    assert found["reported"] == [
        f"{MANY + 4} dead letters requeued, {MANY + 2} rows stored in the table; 2 messages of them could not be read "
        "again",
        "None",
    ]
    assert found["first"].pop("timestamp").startswith("datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=")
    assert found["first"] == {
        "topic": "'t'",
        "partition": "0",
        "offset": "1",
        "timestampType": "0",
        "key": "b'\\xfe'",
        "value": "b'1'",
        "headers": "[{'key': 'h', 'value': b'\\xff'}, {'key': 'h', 'value': None}]",
    }
    assert found["offsets"] == [1, 3, *range(10, 10 + MANY)]
    assert sorted(found["kept"]) == [[2, "b'x'", 2, "no number"], [3, "b'bad'", 2, "no number"]]


@pytest.mark.shows("Avro of several schemas becomes typed rows of a table, and each bad value a dead letter")
@pytest.mark.shows("a table's schema follows the registry: fields are added or left out, and no type is guessed")
@pytest.mark.shows("while the registry is away, messages with known schemas are stored; none becomes a dead letter")
def test_each_value_is_a_typed_row_or_a_dead_letter(outcomes: Any) -> None:
    found = outcomes["typed"]

    mixed_is_right(found["mixed"])
    evolution_is_right(found["evolving"], found["merged"])
    widened_is_right(found["widened"])
    outages_are_waited_for(found["away"])
    assert found["shared"] == {"rows": [{"id": "a", "_at": 0}, {"id": "b", "_at": 1}], "dead": []}, (
        "a schema that a requeue has learnt is known to the batch"
    )
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
    reasons = {
        "plain": "plain-value is not a record, whose fields would be the columns of the table",
        "proto": "a schema of type PROTOBUF, and kctl decodes only Avro",
        "taken": "taken-value has a field _kafka, a name that kctl needs: rename it",
        "twice": "twice-value has a field ID, and another field whose name differs only in case",
        "endless": "endless-value is recursive, or has more than ",
        "nothing": "nothing-value cannot be decoded: shop.Order has a value without bytes, such as null",
        "differing": "the topics have different records (shop.left, shop.right)",
    }
    assert [name for name, reason in reasons.items() if reason not in found[name]] == [], found
