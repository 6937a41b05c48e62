"""Where a table's files are: one contract (`base`), one file per kind."""

from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, at_once
from kctl_agent.storage.lake.folder.local import LocalFolder

__all__ = ["FOLDER", "Folder", "FolderFile", "LocalFolder", "at_once"]
