"""Where a table's files are: one contract (`base`), one file per kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, TableRefused
from kctl_agent.storage.lake.folder.local import LocalFolder

__all__ = ["FOLDER", "Folder", "FolderFile", "LocalFolder", "TableRefused", "folder_of"]


def folder_of(settings: Mapping[str, Any]) -> Folder:
    """Where the settings `[storage]` have it: a folder of this machine, or a prefix of a bucket."""
    uri = urlsplit(settings["uri"])
    if uri.scheme == "s3":
        from kctl_agent.storage.lake.folder.s3 import S3Folder

        return S3Folder.of(settings)
    return LocalFolder(Path(unquote(uri.path)))
