"""`kctl kafka delete-group` and `reset-offsets`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from kctl.cli.kafka.changes import change, check_choice
from kctl.cli.kafka.cluster import connected, wanted_partitions
from kctl.cli.kafka.offsets import committed_rows
from kctl.cli.kafka.output import show
from kctl.errors import UsageError
from kctl.kafka import admin
from kctl.kafka.groups import describe_groups
from kctl.kafka.reset import OffsetChange, apply, plan, refuse_members
from kctl.kafka.target import target

_COMMITTED = ("group", "topic", "partition", "committed_offset")
_CHANGES = ("topic", "partition", "old", "new", "difference")


def delete_group(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    check_choice(options)
    name = options.group
    with connected(options, env) as connection:
        connection.open()
        [group] = describe_groups(connection, [name])
        if group.error is not None:
            raise group.error
        refuse_members(group)
        rows = committed_rows(connection, name)
        shown = partial(show, options, _COMMITTED, rows, group=name, state=group.state)
        question = f"Delete group {name} and what it has committed?"
        offsets = [[row["topic"], row["partition"], row["committed_offset"]] for row in rows]

        def make() -> str:
            admin.delete_group(connection, name)
            return f"group {name} deleted"

        return change(options, env, connection, "delete-group", question, shown, make, group=name, offsets=offsets)


def reset_offsets(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    to = target(options.to)
    check_choice(options)
    if not options.topic:
        raise UsageError("give a topic: -t TOPIC; see `kctl kafka reset-offsets --help`")
    with connected(options, env) as connection:
        topics, wanted = wanted_partitions(connection, options.topic)
        changes = plan(connection, options.group, topics, wanted, to)
        params = _audit_params(options.group, changes)

        def make() -> str:
            nonlocal changes
            changes = apply(connection, options.group, changes)
            return _summary(changes)

        def shown(*, executed: bool) -> None:
            _show_changes(options, changes, executed=executed)

        question = f"Set these offsets of group {options.group}?"
        return change(options, env, connection, "reset-offsets", question, shown, make, **params)


def _audit_params(group: str, changes: list[OffsetChange]) -> dict[str, Any]:
    """Includes the old offsets, so that a mistake can be undone."""
    return {"group": group, "offsets": [[each.topic, each.partition, each.old, each.new] for each in changes]}


def _summary(changes: list[OffsetChange]) -> str:
    failed = sum(change.error is not None for change in changes)
    count = len(changes) - failed
    return f"{count} offset{'' if count == 1 else 's'} set" + (f", {failed} not" if failed else "")


def _show_changes(options: argparse.Namespace, changes: list[OffsetChange], **more: Any) -> None:
    rows = [each._asdict() | {"difference": each.difference} for each in changes]
    show(options, _CHANGES, rows, group=options.group, **more)
