"""A catalog in a SQLite file: where that is. SQLite makes a file that is not there when it is first read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kctl_agent.storage.base import StorageUnusable

__all__ = ["catalog_file", "check_catalog_folder"]


def catalog_file(properties: Mapping[str, str]) -> Path | None:
    """None: the catalog is in none. SQLAlchemy takes a path as it is, without escapes."""
    uri = urlsplit(properties.get("uri", ""))
    is_file = properties.get("type") == "sql" and uri.scheme.partition("+")[0] == "sqlite" and uri.path.startswith("//")
    return Path(uri.path[1:]) if is_file else None


def check_catalog_folder(properties: Mapping[str, str]) -> None:
    """Raises StorageUnusable: the file is not there, and cannot be made for want of a folder."""
    file = catalog_file(properties)
    if file is None or file.parent.is_dir():
        return
    folder = file.parent
    what = f"{folder}, in which the catalog of storage.catalog is to be made,"
    if folder.exists():
        raise StorageUnusable(f"{what} is no folder")
    raise StorageUnusable(f"the folder {what} does not exist: mkdir -p {shlex.quote(str(folder))}")
