"""docs/configuration.md, made of the table of settings: `python -m tests.configuration_page` prints it."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import Field, fields
from textwrap import fill
from typing import Any, Literal

from kctl.config.clusters import NAMED, SecuritySection
from kctl.config.declared import allowed, default_of, kind_words, mark, plain
from kctl.config.effects import effect
from kctl.config.forms import Effect, Section, Unit
from kctl.config.schema import help_texts
from kctl.config.sections import SECTIONS
from kctl.config.values import as_json

_INTRODUCTION = """\
# Configuration

<!-- `python -m tests.configuration_page` writes this from kctl/config/sections.py: change it there. -->

A fleet is described by one TOML file, usually `kctl.toml`. The smallest one:

```toml
[kafka]
bootstrap_servers = "127.0.0.1:9092"
group = "orders-to-lake"
topics = ["orders"]
```

- Defaults, then the file, then the environment, then `--set SECTION.KEY=VALUE`: each later one wins. `kctl config show`
  prints the outcome and where each value came from; `kctl config check` only checks.
- The variable of a setting is `KCTL_SECTION_KEY`, such as `KCTL_KAFKA_GROUP`. Lists are separated by commas, tables are
  `key=value` pairs separated by commas.
- Relative paths are relative to the folder of the file, wherever they were given.
- An unknown section, key or variable is an error that names the nearest known one. Everything is read once, at the
  start, and again with `kctl reload` (or SIGHUP), which applies what it can and names the rest.
- In brackets stand the default, what else can be set, and what a change takes effect with: that *reload*, the next
  start of a *process*, or that of the *fleet*.
- Editors that build on taplo, such as VS Code with Even Better TOML, complete and check the file by its schema: `kctl
  config schema > kctl.schema.json`, and `#:schema ./kctl.schema.json` as the first line of the file.

Not settings, but read from the environment too: `KCTL_CONFIG` (the file that is meant without `-c`), `KCTL_DEBUG=1`
(show tracebacks), `KCTL_CONTEXT` (`kctl kafka`), `KCTL_SASL_PASSWORD` and `KCTL_CLUSTER_SECRET`
(secrets that stand in no file; workers and sinkers do not inherit them), `KCTL_MAVEN_REPOSITORY` (a mirror for the
jars), `KCTL_CACHE_DIR` (where they are kept).
"""
_EFFECTS = {Effect.NOW: "reload", Effect.NEXT_START: "process", Effect.FLEET: "fleet"}
_PLAIN = ("text", "path", "true, false")
"""Types that a default shows."""
_RANGED = (Literal, int, float)
"""Types whose bounds the page shows. What texts look like is in their help text, and again only in errors."""


def reference() -> str:
    """Returns the whole page, ending with a newline."""
    sections = [_section(section, kind) for section, kind in SECTIONS.items()]
    return "".join([_INTRODUCTION, *sections, *map(_named, NAMED.items())])


def _section(title: str, kind: type[Section]) -> str:
    texts = help_texts(kind)
    entries = [_entry(kind, each, texts[each.name]) for each in fields(kind)]
    return "\n".join([f"\n## `[{title}]`\n", f"{inspect.getdoc(kind)}\n", *entries, ""])


def _named(section: tuple[str, type[Section]]) -> str:
    """Describes a section of which a file may have several; the keys of a cluster stand in the table of `[kafka]`."""
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
    """Returns an entry of a list, in lines of at most 120 columns."""
    return fill(f"- {text}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _type(setting: Field[Any]) -> str:
    """Describes type, unit and bounds: `seconds from 1 to 1800`; of a choice, what can be chosen."""
    words = kind_words(setting.type)
    unit = mark(setting.type, Unit) or ("seconds" if setting.name.endswith("_seconds") else None)
    takes = allowed(setting.type) if plain(setting.type) in _RANGED else words
    return takes.replace(words, unit or words.removeprefix("a ")).replace(" or ", ", ")


if __name__ == "__main__":
    sys.stdout.write(reference())
