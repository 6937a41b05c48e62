"""Which Avro schemas kctl rejects, because a message could crash the process or cost far more than its bytes."""

import io
import json
from typing import Any

import fastavro
import pytest

from kctl_agent.errors import Undecodable
from kctl_agent.schemas.avro import decode, self_contained
from kctl_agent.schemas.plain import MOST_LEVELS

NULL = {"type": "array", "items": "null"}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def levels(count: int) -> dict[str, Any]:
    """A chain of records, each in a union, so that each level takes a byte."""
    schema: Any = "int"
    for number in range(count // 2):
        schema = record(f"R{number}", ["null", schema])
    return dict(schema)


def doubled(count: int) -> dict[str, Any]:
    """A record of 2**count values."""
    schema = record("R0", "int")
    for number in range(count):
        schema = record(f"R{number + 1}", schema, f"R{number}")
    return schema


def chain(count: int) -> list[Any]:
    """Records that refer to each other by name, so that the text does not nest."""
    return [record("R0", "int"), *(record(f"R{number}", f"R{number - 1}") for number in range(1, count))]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (NODE, "is recursive"),
        (record("R", {"type": "map", "values": "R"}), "is recursive"),
        (record("R", "R"), "is recursive"),
        ({**record("R", ["null", "R"], namespace="n"), "__fastavro_parsed": True}, "is recursive"),
        (levels(MOST_LEVELS + 2), "is recursive"),
        (chain(5000), "is recursive"),
        (doubled(30), "is recursive"),
        (NULL, "without bytes"),
        ([record("null", "int"), NULL], "without bytes"),
        ({"type": "array", "items": record("R")}, "without bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "without bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": -1}}, "without bytes"),
        (record("R", *["null"] * 9), "R has a value without bytes"),
        ({"__fastavro_parsed": True}, "is not an Avro schema"),
        ("Missing", "is not an Avro schema"),
        ("\ud800", "is not an Avro schema"),
        (record("\ud800"), "is not an Avro schema"),
    ],
)
def test_a_schema_is_rejected_if_its_values_can_cost_far_more_than_their_bytes(schema: Any, words: str) -> None:
    with pytest.raises(Undecodable, match=f"^UnsupportedSchema: id 7 .*{words}") as raised:
        self_contained(json.dumps(schema), [], "id 7")
    str(raised.value).encode()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"type": "array", "items": ' * 900 + '"int"' + "}" * 900])
def test_the_text_of_a_schema_may_nest_as_deep_as_it_likes(text: str) -> None:
    with pytest.raises(Undecodable, match=r"^UnsupportedSchema: id 7 "):
        self_contained(text, [], "id 7")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (record("Ping"), {}),
        ("null", None),
        ({"type": "array", "items": ["null", record("Ping")]}, [None, {}]),
        ({"type": "map", "values": "null"}, {"a": None}),
        (doubled(3), None),
        (levels(MOST_LEVELS), {"f0": None}),
        (record("Wide", *[["null", "int"]] * 3000), None),
    ],
)
def test_other_schemas_are_decoded(schema: Any, value: Any) -> None:
    text, _ = self_contained(json.dumps(schema), [], "id 7")
    if value is not None:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
        assert decode(text, written.getvalue()) == value


@pytest.mark.parametrize("kind", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 100_000}])
def test_a_decimal_of_many_bytes_is_rejected_at_once(kind: dict[str, Any]) -> None:
    schema = json.dumps({**kind, "logicalType": "decimal", "precision": 9, "scale": 2})
    length = b"" if "size" in kind else b"\xc0\x9a\x0c"

    with pytest.raises(Undecodable, match="BadRecord: ValueError: a decimal of 100000 bytes"):
        decode(schema, length + b"\x7f" * 100_000)
