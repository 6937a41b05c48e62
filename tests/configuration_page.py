"""The settings of docs/configuration.md, from their table."""

import inspect
import json
from dataclasses import Field, fields
from textwrap import fill
from typing import Any, Literal

from kctl.cli.config import help_texts
from kctl.config.clusters import NAMED, SecuritySection
from kctl.config.effects import effect
from kctl.config.forms import Effect, Section, Unit, allowed, default_of, kind_words, mark, plain
from kctl.config.sections import SECTIONS
from kctl.config.values import as_json

_EFFECTS = {Effect.NOW: "reload", Effect.NEXT_START: "process", Effect.FLEET: "fleet"}
_PLAIN = ("text", "path", "true, false")
_RANGED = (Literal, int, float)  # types whose bounds the page shows


def reference() -> str:
    sections = [_section(section, kind) for section, kind in SECTIONS.items()]
    return "".join([*sections, *map(_named, NAMED.items())])


def _section(title: str, kind: type[Section]) -> str:
    texts = help_texts(kind)
    entries = [_entry(kind, each, texts[each.name]) for each in fields(kind)]
    return "\n".join([f"\n## `[{title}]`\n", f"{inspect.getdoc(kind)}\n", *entries, ""])


def _named(section: tuple[str, type[Section]]) -> str:
    """Describes a section that can occur several times; `[kafka]` describes the keys of a cluster."""
    title, kind = section
    if not issubclass(kind, SecuritySection):
        return _section(f"{title}.NAME", kind)
    names = [each.name for each in fields(kind)]
    known = next(each for each, of in NAMED.items() if [field.name for field in fields(of)] == names)
    listed = f"Its keys, as in `[kafka]`: {', '.join(map('`{}`'.format, names))}."
    keys = fill(listed, 120) if known == title else f"Its keys are those of `[{known}.NAME]`."
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
    words = kind_words(setting.type)
    unit = mark(setting.type, Unit) or ("seconds" if setting.name.endswith("_seconds") else None)
    takes = allowed(setting.type) if plain(setting.type) in _RANGED else words
    return takes.replace(words, unit or words.removeprefix("a ")).replace(" or ", ", ")
