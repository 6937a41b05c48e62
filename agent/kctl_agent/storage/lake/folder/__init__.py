"""The places of a table's files: one contract (`base`), and one module per kind of place."""

from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, at_once
from kctl_agent.storage.lake.folder.local import LocalFolder

__all__ = ["FOLDER", "Folder", "FolderFile", "LocalFolder", "at_once"]
