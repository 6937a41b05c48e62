from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage

INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "a > 3"}})}


def field(name: str, type_: Any, *, nullable: bool = True, **metadata: str) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def struct(**more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [field("a", "long", **more)]}


def array(of: Any, *, null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": of, "containsNull": null}


def map_(key: Any, value: Any, *, null: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": null}


def table_of(path: Path, *fields: dict[str, Any]) -> LakeStorage:
    schema = json.dumps({"type": "struct", "fields": fields})
    made = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": []}
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": made | {"configuration": {}}}]
    (path / "_delta_log").mkdir(parents=True)
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (path / "_delta_log" / f"{0:020}.json").write_text(text)
    storage = LakeStorage(LocalFolder(path))
    storage.prepare()
    return storage


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.shows("a restored or replaced table is detected; unsupported features are rejected by name")
@pytest.mark.parametrize(
    ("there", "given", "place"),
    [
        (struct(nullable=False), struct(), "s.a"),
        (array("long", null=False), array("long"), "s.element"),
        (array(struct(nullable=False)), array(struct()), "s.element.a"),
        (map_("string", "long", null=False), map_("string", "long"), "s.value"),
        (map_("string", struct(nullable=False)), map_("string", struct()), "s.value.a"),
        (map_(struct(nullable=False), "long"), map_(struct(), "long"), "s.key.a"),
    ],
)
def test_nullable_columns_do_not_fit_those_that_are_not(path: Path, there: Any, given: Any, place: str) -> None:
    storage = table_of(path, field("s", there), field("n", "long"))

    with pytest.raises(TableRefused, match=f"column {place} of the table .* must not be null"):
        storage.fit(schema(field("s", given)))
    storage.fit(schema(field("s", there)))
    storage.fit(schema(field("n", "long")))


@pytest.mark.parametrize("of", [struct(**INVARIANT), array(struct(**INVARIANT)), map_("long", struct(**INVARIANT))])
def test_an_invariant_inside_of_a_column_is_rejected(path: Path, of: Any) -> None:
    storage = table_of(path, field("s", of))

    with pytest.raises(TableRefused, match="has invariants, which kctl cannot check"):
        storage.fit(schema(field("s", of)))
