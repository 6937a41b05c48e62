"""Changes of a group's committed offsets: the line in the audit log, and the table of old and new offsets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.changes import audited
from kctl.cli.kafka.output import show

if TYPE_CHECKING:
    from kctl.audit import AuditedOperation
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.reset import OffsetChange

__all__ = ["audited_changes", "show_changes", "summary"]

_CHANGES = (("topic", False), ("partition", True), ("old", True), ("new", True), ("difference", True))


def audited_changes(
    options: argparse.Namespace,
    env: Mapping[str, str],
    name: str,
    connection: ClusterConnection,
    changes: list[OffsetChange],
) -> AbstractContextManager[AuditedOperation]:
    """Audits changes of offsets; the line holds the old ones: with them a mistake can be undone."""
    offsets = [[change.topic, change.partition, change.old, change.new] for change in changes]
    return audited(options, env, name, cluster=connection.access.named, group=options.group, offsets=offsets)


def summary(changes: list[OffsetChange]) -> str:
    failed = sum(change.error is not None for change in changes)
    count = len(changes) - failed
    return f"{count} offset{'' if count == 1 else 's'} set" + (f", {failed} not" if failed else "")


def show_changes(options: argparse.Namespace, changes: list[OffsetChange], **more: Any) -> None:
    show(options, _CHANGES, _rows(changes), group=options.group, **more)


def _rows(changes: list[OffsetChange]) -> list[dict[str, Any]]:
    return [
        {
            "topic": change.topic,
            "partition": change.partition,
            "old": change.old,
            "new": change.new,
            "difference": change.difference,
            "error": change.error,
        }
        for change in changes
    ]
