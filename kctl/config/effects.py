"""When a changed setting takes effect: at once with `kctl reload`, with a process's next start, or the fleet's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from kctl.config.sections import SECTIONS, Config
from kctl.config.values import shown

__all__ = ["Change", "Effect", "changes", "effect"]


class Effect(StrEnum):
    """In words for the page of settings and for the answer to `kctl reload`."""

    NOW = "with `kctl reload`"
    NEXT_START = "with the next start of a process"
    FLEET = "with the next start of the fleet"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that was changed; the values as they may be shown."""

    name: str
    before: Any
    after: Any
    effect: Effect


_NOW = frozenset(
    {
        "workers.count",
        "workers.start_timeout_seconds",
        "workers.stop_timeout_seconds",
        "workers.backoff_min_seconds",
        "workers.backoff_max_seconds",
        "workers.stable_seconds",
        "workers.on_fatal",
        "workers.ping_interval_seconds",
        "workers.ping_timeout_seconds",
        "workers.memory_soft",
        "workers.memory_hard",
        "workers.memory_breaches",
        "workers.memory_interval_seconds",
        "workers.stalled_seconds",
        "engine.memory_soft",
        "engine.memory_hard",
        "sinkers.count",
        "http.token_file",
        "http.read_token_file",
        "http.allowed_hosts",
        "log.level",
        "storage.upkeep",
    }
)
_NOW_SECTIONS = frozenset({"exporter"})
_NEXT_START_SECTIONS = frozenset({"workers", "engine", "spark", "storage", "sinkers"})
_FLEET = frozenset({"spark.jars", "workers.engine"})
"""Which processes there are, and what is checked once, before anything is started."""
_OF_WORKERS_ALONE = frozenset(
    {
        "kafka.auto_offset_reset",
        "kafka.assignor",
        "kafka.session_timeout_seconds",
        "kafka.heartbeat_interval_seconds",
        "kafka.max_poll_interval_seconds",
        "kafka.static_membership",
    }
)


def effect(name: str) -> Effect:
    """Of a setting `section.key`; one that nobody has thought of here waits for the next start of the fleet."""
    if name in _NOW or name.partition(".")[0] in _NOW_SECTIONS:
        return Effect.NOW
    is_given_at_start = name.partition(".")[0] in _NEXT_START_SECTIONS or name in _OF_WORKERS_ALONE
    return Effect.NEXT_START if is_given_at_start and name not in _FLEET else Effect.FLEET


def changes(before: Config, after: Config) -> list[Change]:
    """What differs, in the order of the page of settings."""
    found = []
    for section, kind in SECTIONS.items():
        old, new = getattr(before, section), getattr(after, section)
        for setting in fields(kind):
            was, becomes = getattr(old, setting.name), getattr(new, setting.name)
            if was != becomes:
                name = f"{section}.{setting.name}"
                found.append(Change(name, shown(setting, was), shown(setting, becomes), effect(name)))
    return found
