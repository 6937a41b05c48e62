"""Messages as rows of a table in a lake, which others query."""

from __future__ import annotations

from kctl_agent.storage.lake.iceberg import IcebergStorage
from kctl_agent.storage.lake.storage import LakeBatch, LakeStorage, TableStorage, dead_letter_folder

__all__ = ["IcebergStorage", "LakeBatch", "LakeStorage", "TableStorage", "dead_letter_folder"]
