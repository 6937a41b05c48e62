"""Folders of tables, on this machine or in an object store."""

from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, at_once
from kctl_agent.storage.lake.folder.local import LocalFolder

__all__ = ["FOLDER", "Folder", "FolderFile", "LocalFolder", "at_once"]
