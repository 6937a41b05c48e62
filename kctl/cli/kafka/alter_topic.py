"""`kctl kafka alter-topic`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.changes import change, check_choice, settings_of
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import Topic

__all__ = ["run"]

_CHANGES = ("setting", "old", "new")
_DEFAULT = "(default)"


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name, total, settings = options.topic, options.partitions, _settings(options)
    if total is None and not settings:
        raise UsageError("give what to alter: --partitions N, --set KEY=VALUE or --unset KEY")
    with connected(options, env) as connection:
        from kctl.kafka.client.layout import require, topics_of

        topic = require(topics_of(connection.open([name])), name)
        rows = _plan(connection, topic, total, settings)
        _alter(connection, name, total, settings, is_dry_run=True)  # so that what is refused is refused before anything
        shown = partial(show, options, _CHANGES, rows, topic=name)
        question = f"Alter topic {name} so?" + (" Partitions cannot be removed again." if total is not None else "")

        def make() -> str:
            _alter(connection, name, total, settings, is_dry_run=False)
            return f"topic {name} altered"

        return change(options, env, connection, "alter-topic", question, shown, make, topic=name, changes=rows)


def _settings(options: argparse.Namespace) -> dict[str, str | None]:
    """Returns what is to be set, None for what is to be removed."""
    settings: dict[str, str | None] = dict(settings_of(options.set, "--set"))
    for key in options.unset or ():
        if key in settings:
            raise UsageError(f"--set and --unset of {key} contradict each other")
        settings[key] = None
    return settings


def _plan(
    connection: ClusterConnection, topic: Topic, total: int | None, settings: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Returns what would change, setting by setting, with the value before. Raises UsageError: there is no such
    setting, or fewer partitions are wanted than there are."""
    from kctl.kafka.admin import values_of

    rows: list[dict[str, Any]] = []
    if total is not None:
        count = len(topic.partitions)
        if total <= count:
            raise UsageError(f"topic {topic.name} has {count} partitions: they can only become more, not {total}")
        rows.append({"setting": "partitions", "old": count, "new": total})
    old = values_of(connection, topic.name, list(settings)) if settings else {}
    return rows + [
        {"setting": key, "old": old[key], "new": _DEFAULT if value is None else value}
        for key, value in settings.items()
    ]


def _alter(
    connection: ClusterConnection, name: str, total: int | None, settings: Mapping[str, str | None], *, is_dry_run: bool
) -> None:
    from kctl.kafka.admin import add_partitions, alter_settings

    if settings:
        alter_settings(connection, name, settings, is_dry_run=is_dry_run)
    if total is not None:
        add_partitions(connection, name, total, is_dry_run=is_dry_run)
