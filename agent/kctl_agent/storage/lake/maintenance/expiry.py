"""Removal of dead letters that are older than the limits allow: of whole files alone, so that no file is written."""

from __future__ import annotations

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.maintenance.compaction import Compaction
from kctl_agent.storage.lake.table_storage import TableStorage
from kctl_agent.storage.selection import Selection


def expire(lake: TableStorage, group: str) -> int:
    """Remove the files in which every dead letter of the group is too old, and returns how many dead letters they had.
    A file that has a newer one, one that was put back or one of another group stays. Raises StorageUnusable,
    TableRefused."""
    dead_letters = DeadLetterTable(lake, group)
    if lake.limits.dead_seconds is None or not dead_letters.storage.table.exists():
        return 0
    compaction = Compaction(dead_letters.storage.table)
    expired = dead_letters.whole_files(Selection(older_than_seconds=lake.limits.dead_seconds))
    compaction.remove([file for file in compaction.files if own_file(file.path) in expired])
    return sum(expired.values())
