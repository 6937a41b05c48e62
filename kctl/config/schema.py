"""The JSON Schema of kctl.toml for editors, and each setting's help text: the string below its field in the source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any

import msgspec

from kctl.config.clusters import NAMED
from kctl.config.forms import NAME, Form, Section, default_of, items, mark, plain
from kctl.config.sections import SECTIONS
from kctl.config.values import as_json
from kctl_agent.rpc.wire import JsonObject


def json_schema() -> JsonObject:
    """Requires no section, because variables can set everything."""
    named = {section: _named(kind) for section, kind in NAMED.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kctl.toml",
        **_table("Settings of kctl.", {section: _section(kind) for section, kind in SECTIONS.items()} | named),
    }


def _named(kind: type[Section]) -> JsonObject:
    required = [each.name for each in fields(kind) if default_of(each) is None]
    table = _section(kind) | {"required": required}
    return {"type": "object", "patternProperties": {f"^{NAME}$": table}, "additionalProperties": False}


def _section(kind: type[Section]) -> JsonObject:
    texts = help_texts(kind)
    return _table(inspect.getdoc(kind) or "", {each.name: _setting(each, texts[each.name]) for each in fields(kind)})


def _table(text: str, properties: JsonObject) -> JsonObject:
    return {"type": "object", "description": text, "properties": properties, "additionalProperties": False}


def _setting(setting: Field[Any], text: str) -> JsonObject:
    default = default_of(setting)
    return _value(setting.type) | {"description": text} | ({} if default is None else {"default": as_json(default)})


def _value(kind: Any) -> JsonObject:
    if plain(kind) is tuple:
        bounds = mark(kind, msgspec.Meta) or msgspec.Meta()
        return {"type": "array", "items": _value(items(kind)[0]), "minItems": bounds.min_length or 0}
    if plain(kind) is Mapping:
        return {"type": "object"}  # values need no quotes, nor its keys
    form = mark(kind, Form)
    found = msgspec.json.schema(kind, schema_hook=lambda _: {"type": "string", "minLength": 1})
    return found | ({"pattern": f"^(?:{form.pattern})$"} if form else {})


def help_texts(kind: type[Section]) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in kind.__mro__[:-1]:
        (declared,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(declared, ast.ClassDef)
        for field, below in pairwise(declared.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found
