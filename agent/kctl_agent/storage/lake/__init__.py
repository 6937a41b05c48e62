"""Messages as rows of a table in a lake, which others query."""

from __future__ import annotations

from kctl_agent.storage.lake.storage import LakeBatch, LakeStorage, dead_letter_folder

__all__ = ["LakeBatch", "LakeStorage", "dead_letter_folder"]
