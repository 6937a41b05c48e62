"""docs/configuration.md, written from the table of settings."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from kctl.config import contexts
from kctl.config.effects import Effect, effect
from kctl.config.load import CLUSTERS
from kctl.config.sections import SECTIONS, Cluster, Context
from kctl.config.values import allowed, kind_words

__all__ = ["reference"]

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m kctl.config > docs/configuration.md` from kctl/config/sections.py. Change it there. -->

A fleet is described by one TOML file, by custom `kctl.toml`. The smallest one:

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
  start, and again with `kctl reload` (or SIGHUP), which applies what it can and names the rest. *Changes with*: that
  `reload`, the next start of a `process`, or that of the `fleet`.

Not settings, but read from the environment too: `KCTL_CONFIG` (the file that is meant without `-c`), `KCTL_DEBUG=1`
(show tracebacks), `KCTL_CONTEXT` (`kctl kafka`), `KCTL_SASL_PASSWORD` and `KCTL_CLUSTER_SECRET`
(secrets that stand in no file; workers and sinkers do not inherit them), `KCTL_MAVEN_REPOSITORY` (a mirror for the
jars), `KCTL_CACHE_DIR` (where they are kept).
"""
_EFFECTS = {Effect.NOW: "reload", Effect.NEXT_START: "process", Effect.FLEET: "fleet"}


def reference() -> str:
    """The whole page, ending with a newline."""
    parts = [_INTRODUCTION]
    for section, kind in SECTIONS.items():
        rows = [_row(section, setting) for setting in fields(kind)]
        parts.append(
            f"\n## `[{section}]`\n\n{kind.__doc__}\n\n"
            "| key | type | default | what it does | changes with |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    parts += [_named(contexts.SECTION, Context), _named(CLUSTERS, Cluster)]
    return "".join(parts)


def _named(section: str, kind: type) -> str:
    rows = [_row(f"{section}.NAME", setting) for setting in fields(kind)]
    return (
        f"\n## `[{section}.NAME]`\n\n{kind.__doc__}\n\n"
        "| key | type | default | what it does |\n|---|---|---|---|\n"
        + "\n".join(row.rsplit(" | ", 1)[0] + " |" for row in rows)
        + "\n"
    )


def _row(section: str, setting: Field[Any]) -> str:
    rule = setting.metadata
    kind = kind_words(setting)
    if rule["unit"]:
        kind += f", {rule['unit']}"
    sentence = rule["sentence"]
    if rule["choices"] or rule["minimum"] is not None:
        sentence += f" Takes {allowed(setting)}."
    cells = [
        f"`{setting.name}`",
        kind,
        _default(setting),
        sentence,
        _EFFECTS[effect(f"{section}.{setting.name}")],
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(setting: Field[Any]) -> str:
    if setting.metadata["required"]:
        return "**required**"
    value = {} if setting.default is MISSING else setting.default
    if isinstance(value, Path):
        value = str(value)
    return f"`{json.dumps(value)}`"
