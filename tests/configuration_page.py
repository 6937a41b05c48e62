"""docs/configuration.md from the table of settings: `python -m tests.configuration_page` prints it."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import Field, fields
from textwrap import fill
from typing import Any, Literal

from kctl.config.clusters import NAMED, SecuritySection
from kctl.config.effects import effect
from kctl.config.forms import Effect, Section, Unit, allowed, default_of, kind_words, mark, plain
from kctl.config.schema import help_texts
from kctl.config.sections import SECTIONS
from kctl.config.values import as_json

_INTRODUCTION = """\
# Configuration

<!-- `python -m tests.configuration_page` writes this from kctl/config/sections.py: change it there. -->

One TOML file, usually `kctl.toml`, describes a fleet. The smallest one:

```toml
[kafka]
bootstrap_servers = "127.0.0.1:9092"
group = "orders-to-lake"
topics = ["orders"]
```

- Later sources override earlier ones: defaults, the file, the environment, `--set SECTION.KEY=VALUE`. `kctl config
  show` prints each value and its source; `kctl config check` only checks.
- The variable of a setting is `KCTL_SECTION_KEY`, such as `KCTL_KAFKA_GROUP`. Separate the items of a list, or the
  `key=value` pairs of a table, with commas.
- Relative paths are relative to the folder of the file, even in variables and flags.
- An unknown section, key or variable is an error that names the nearest known one. kctl reads everything at the start,
  and again with `kctl reload` (or SIGHUP), which applies what it can and names the rest.
- The brackets contain the default, other possible values, and when a change takes effect: with `kctl reload`, or when
  the *process* or the *fleet* next starts.
- Editors that use taplo, such as VS Code with Even Better TOML, complete and check the file with its schema: `kctl
  config schema > kctl.schema.json`, and `#:schema ./kctl.schema.json` as the first line of the file.

kctl also reads these variables: `KCTL_CONFIG` (the file without `-c`), `KCTL_DEBUG=1` (tracebacks), `KCTL_CONTEXT`
(`kctl kafka`), `KCTL_SASL_PASSWORD` and `KCTL_CLUSTER_SECRET` (secrets that are in no file; workers and sinkers do not
inherit them), `KCTL_MAVEN_REPOSITORY` (a mirror for the jars), `KCTL_CACHE_DIR` (the folder of the jars).
"""
_EFFECTS = {Effect.NOW: "reload", Effect.NEXT_START: "process", Effect.FLEET: "fleet"}
_PLAIN = ("text", "path", "true, false")
_RANGED = (Literal, int, float)
"""Types whose bounds the page shows. Help texts and errors describe the form of texts."""


def reference() -> str:
    sections = [_section(section, kind) for section, kind in SECTIONS.items()]
    return "".join([_INTRODUCTION, *sections, *map(_named, NAMED.items())])


def _section(title: str, kind: type[Section]) -> str:
    texts = help_texts(kind)
    entries = [_entry(kind, each, texts[each.name]) for each in fields(kind)]
    return "\n".join([f"\n## `[{title}]`\n", f"{inspect.getdoc(kind)}\n", *entries, ""])


def _named(section: tuple[str, type[Section]]) -> str:
    """Describes a section that can occur several times; `[kafka]` describes the keys of a cluster."""
    title, kind = section
    if not issubclass(kind, SecuritySection):
        return _section(f"{title}.NAME", kind)
    keys = fill(f"Its keys, as in `[kafka]`: {', '.join(f'`{each.name}`' for each in fields(kind))}.", 120)
    return f"\n## `[{title}.NAME]`\n\n{inspect.getdoc(kind)}\n\n{keys}\n"


def _entry(kind: type[Section], setting: Field[Any], text: str) -> str:
    default = default_of(setting)
    facts = (
        "**required**" if default is None else f"`{json.dumps(as_json(default))}`",
        *([] if (takes := _type(setting)) in _PLAIN else [takes]),
        _EFFECTS[effect(kind, setting)],
    )
    return entry(f"`{setting.name}` ({'; '.join(facts)}): {text}")


def entry(text: str) -> str:
    return fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _type(setting: Field[Any]) -> str:
    """Type, unit and bounds, such as `seconds from 1 to 1800`, or the choices."""
    words = kind_words(setting.type)
    unit = mark(setting.type, Unit) or ("seconds" if setting.name.endswith("_seconds") else None)
    takes = allowed(setting.type) if plain(setting.type) in _RANGED else words
    return takes.replace(words, unit or words.removeprefix("a ")).replace(" or ", ", ")


if __name__ == "__main__":
    sys.stdout.write(reference())
