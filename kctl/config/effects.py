"""The settings of a configuration as they may be shown, and the difference between two with when it takes effect."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any

from kctl.config.clusters import CheckpointSection
from kctl.config.declared import default_of, mark
from kctl.config.forms import Effect, Section
from kctl.config.sections import SECTIONS, Config
from kctl.config.values import as_json, shown


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that was changed; the values as they may be shown."""

    name: str
    before: Any
    after: Any
    effect: Effect


def effect(kind: type[Section], setting: Field[Any]) -> Effect:
    """Returns when a changed setting takes effect, by its type or its section."""
    return mark(setting.type, Effect) or kind.effect


def changes(before: Config, after: Config) -> list[SettingChange]:
    """Returns the settings that differ, in the order of the page of settings."""
    found = []
    for section, kind in SECTIONS.items():
        old, new = getattr(before, section), getattr(after, section)
        for setting in fields(kind):
            was, becomes = getattr(old, setting.name), getattr(new, setting.name)
            if was != becomes:
                name, when = f"{section}.{setting.name}", effect(kind, setting)
                found.append(SettingChange(name, shown(setting, was), shown(setting, becomes), when))
    for name in sorted({*before.checkpoints, *after.checkpoints}):
        sections = before.checkpoints.get(name), after.checkpoints.get(name)
        for setting in fields(CheckpointSection):
            was, becomes = (getattr(each, setting.name, default_of(setting)) for each in sections)
            if was != becomes:
                found.append(SettingChange(f"checkpoints.{name}.{setting.name}", was, becomes, Effect.NOW))
    return found


def shown_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Returns every setting by section, as JSON has it, without secrets."""
    return {
        section: {
            each.name: as_json(shown(each, getattr(getattr(config, section), each.name))) for each in fields(kind)
        }
        for section, kind in SECTIONS.items()
    }
