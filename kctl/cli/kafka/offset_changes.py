"""Changes of a group's committed offsets: what is audited of them, and the table of old and new offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.output import show

if TYPE_CHECKING:
    from kctl.kafka.reset import OffsetChange

__all__ = ["audit_params", "show_changes", "summary"]

_CHANGES = ("topic", "partition", "old", "new", "difference")


def audit_params(group: str, changes: list[OffsetChange]) -> dict[str, Any]:
    """Returns what is audited, the old offsets too: with them a mistake can be undone."""
    return {"group": group, "offsets": [[each.topic, each.partition, each.old, each.new] for each in changes]}


def summary(changes: list[OffsetChange]) -> str:
    failed = sum(change.error is not None for change in changes)
    count = len(changes) - failed
    return f"{count} offset{'' if count == 1 else 's'} set" + (f", {failed} not" if failed else "")


def show_changes(options: argparse.Namespace, changes: list[OffsetChange], **more: Any) -> None:
    rows = [each._asdict() | {"difference": each.difference} for each in changes]
    show(options, _CHANGES, rows, group=options.group, **more)
