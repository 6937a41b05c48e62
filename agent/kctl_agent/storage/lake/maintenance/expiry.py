"""Removal of dead letters that are older than the limits allow: of whole files alone, so that no file is written."""

from __future__ import annotations

from collections import Counter

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.maintenance.compaction import Compaction
from kctl_agent.storage.lake.table_storage import TableStorage
from kctl_agent.storage.selection import Selection


def expire(lake: TableStorage, group: str) -> int:
    """Remove the files in which every dead letter of the group is too old, and returns how many dead letters they had.
    A file that has a newer one, one that was put back or one of another group stays. Raises StorageUnusable,
    TableRefused."""
    dead_letters, age = DeadLetterTable(lake, group), lake.limits.dead_seconds
    if age is None or not dead_letters.storage.table.exists():
        return 0
    compaction, found = Compaction(dead_letters.storage.table), Counter[str]()
    for origin, _ in dead_letters.rows(Selection(older_than_seconds=age)):
        found[origin.file] += 1
    expired = [file for file in compaction.files if found[own_file(file.path)] == file.rows]
    compaction.remove(expired)
    return sum(found[own_file(file.path)] for file in expired)
