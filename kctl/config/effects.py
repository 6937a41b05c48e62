"""Shows a configuration, but hides secrets. Compares two configurations, and shows when each change takes effect."""

from dataclasses import Field, dataclass, fields
from typing import Any

from kctl.config.clusters import CheckpointSection
from kctl.config.forms import Effect, Section, default_of, mark
from kctl.config.sections import SECTIONS, Config
from kctl.config.values import as_json, shown


@dataclass(frozen=True, slots=True)
class SettingChange:
    name: str
    before: Any
    after: Any
    effect: Effect


def effect(kind: type[Section], setting: Field[Any]) -> Effect:
    return mark(setting.type, Effect) or kind.effect


def changes(before: Config, after: Config) -> list[SettingChange]:
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
    return {
        section: {
            each.name: as_json(shown(each, getattr(getattr(config, section), each.name))) for each in fields(kind)
        }
        for section, kind in SECTIONS.items()
    }
