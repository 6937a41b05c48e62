"""`kctl config show`, `check` and `schema`: the settings and their schema."""

import argparse
import ast
import asyncio
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any

import msgspec

from kctl.cli.command import FILE, OUTPUT, SET, Command, CommandGroup, Option
from kctl.cli.options import config_file, overrides
from kctl.cli.output import as_json as json_text
from kctl.cli.output import as_text, echo
from kctl.cli.table import Column, render
from kctl.config.clusters import NAMED
from kctl.config.effects import shown_settings
from kctl.config.forms import NAME, Form, Section, default_of, items, mark, plain
from kctl.config.load import contexts, contexts_alone, load
from kctl.config.sections import SECTIONS, Config
from kctl.config.storage import storage_settings
from kctl.config.values import as_json
from kctl.errors import ConfigError
from kctl_agent.rpc.wire import JsonObject


def json_schema() -> JsonObject:
    """Returns the JSON Schema of kctl.toml. No section is required, as environment variables can set everything."""
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


def _show(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    loaded = load(config_file(options, env), env, overrides(options))
    values = shown_settings(loaded)
    echo("\n".join(_rows(loaded, values)) if options.output == "table" else as_text(values, options.output))


def _check(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    from kctl.master.user_code import check_transform
    from kctl.start.checks import check_brokers, refusals  # half a second of imports

    path = config_file(options, env)
    if known := contexts_alone(path):
        contexts(path)
        echo(f"{path} can be used by `kctl kafka`: contexts {', '.join(sorted(known))}")
        return
    loaded = load(path, env, overrides(options))
    sentences = [*map(str, refusals(loaded, options.timeout)), *_table_refusals(loaded)]
    if sentences:
        raise ConfigError("\n".join(sentences))
    check_transform(loaded, options.timeout)
    if not options.offline:
        asyncio.run(check_brokers(loaded))
    echo(f"{loaded.path} can be used")
    if loaded.sinkers.count == 0 and loaded.storage.kind.is_queue:
        sys.stderr.write("kctl: sinkers.count is 0, so the storage fills up: no process takes messages out of it\n")


def _table_refusals(config: Config) -> Iterator[str]:
    # Only what kctl can check without writing and without the store.
    if not config.storage.kind.is_table:
        return
    from kctl_agent.errors import StorageError
    from kctl_agent.storage.kinds import open_lake  # numpy and pyarrow: 200 ms

    try:
        open_lake(storage_settings(config)).check_folders()
    except StorageError as error:
        yield f"{config.path}: {error}"


def _rows(config: Config, values: dict[str, dict[str, Any]]) -> list[str]:
    rows = [
        (f"{section}.{key}", json_text(value, in_one_line=True), config.sources[f"{section}.{key}"])
        for section, keys in values.items()
        for key, value in keys.items()
    ]
    return render((Column("setting"), Column("value"), Column("from")), rows)


COMMAND = CommandGroup(
    "config",
    "Show or check a configuration.",
    (
        Command(
            "show",
            "Print every setting and where it came from: default, file, variable or flag.",
            (FILE, SET, OUTPUT),
            run=_show,
        ),
        Command(
            "check",
            "Check a configuration, its handler and its transform.",
            (
                FILE,
                SET,
                Option(("--offline",), "do not connect to brokers, for example in CI", "flag"),
                Option(("--timeout",), "how long each import may take", "number", "SECONDS", 30.0, least=0.1),
            ),
            details="""\
Makes these checks of `kctl start` without starting anything: settings, secrets, folders that another user could
change, the handler, and whether the brokers answer and have the topics. It also looks for the packages and the
folder that a table needs. If Java is installed, it calls the transform with no records in a Spark of its own.
Handler and transform are each imported in a separate process.

It does not check Java, ports in use, folders without write permission, or object stores. Exit code 2 if the
configuration or its code cannot be used, 10 if no broker answers, 11 if a topic is missing.""",
            run=_check,
        ),
        Command(
            "schema",
            "Print the JSON Schema of kctl.toml, for editors.",
            (),
            details="""\
Editors use it to complete and check the file. For editors based on taplo, save it next to the file, and begin the file
with `#:schema ./kctl.schema.json`.""",
            run=lambda *_: echo(json_text(json_schema())),
        ),
    ),
)
