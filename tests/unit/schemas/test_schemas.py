"""Schemas, values and answers of a registry that could crash the process, or cost far more than their bytes, and values
that cannot be shown as JSON."""

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.schemas.avro import decode, self_contained
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.schemas.formats import Formats, RegistrySettings
from kctl_agent.schemas.plain import MOST_LEVELS
from kctl_agent.schemas.registry import MOST_REFERENCES, Registry

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


DECODER = Decoder(Formats(key="json", value="json"))


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "data",
    [nested(MOST_LEVELS + 1), nested(sys.getrecursionlimit() - 100), b"[" * 100_000, b'["\\ud800"]', b'{"\\ud800": 1}'],
)
def test_a_value_that_cannot_be_shown_has_its_reason(data: bytes) -> None:
    document = DECODER.document("value", data, ())

    assert list(document) == ["value_error"]
    assert document["value_error"].startswith("BadRecord: ")


@pytest.mark.parametrize(
    ("data", "shown"),
    [(nested(MOST_LEVELS), json.loads(nested(MOST_LEVELS))), (b'{"k\\u00e4se": [NaN, 1]}', {"käse": ["nan", 1]})],
)
def test_other_values_are_shown(data: bytes, shown: Any) -> None:
    assert DECODER.document("value", data, ()) == {"value_decoded": shown}


def test_json_without_end_is_a_bad_record_for_a_handler() -> None:
    with pytest.raises(Undecodable, match="BadRecord: not JSON"):
        DECODER.value(b"[" * 100_000, ())


class Answering(Registry):
    """The subject `s` has versions: each is a record, and refers `twice` to the version below."""

    def __init__(self, twice: Sequence[str] = ("s", "s"), body: bytes | None = None) -> None:
        super().__init__(RegistrySettings("http://registry"))
        self._twice, self._body = twice, body

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self._body is not None:
            return 200, self._body
        version = int(path.rpartition("/")[2])
        below = [{"subject": each, "version": version - 1} for each in self._twice if version > 1]
        fields = [{"name": "f", "type": f"R{version - 1}" if version > 1 else "int"}]
        schema = json.dumps({"type": "record", "name": f"R{version}", "fields": fields})
        return 200, json.dumps({"schema": schema, "references": below}).encode()


def prefix(number: int) -> bytes:
    return b"\0" + number.to_bytes(4)


@pytest.mark.timeout(20)
def test_a_schema_that_is_referenced_twice_is_used_once() -> None:
    assert Answering().by_prefix(prefix(64)).name == "R64"


def test_a_schema_with_too_many_references_is_rejected() -> None:
    with pytest.raises(Undecodable, match=rf"UnsupportedSchema: .* more than {MOST_REFERENCES} references"):
        Answering().by_prefix(prefix(5000))


def test_an_answer_that_nests_too_deeply_is_an_outage() -> None:
    with pytest.raises(RegistryUnusable, match="something other than a schema"):
        Answering(body=b"[" * 100_000).by_prefix(prefix(1))
