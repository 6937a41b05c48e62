"""Files of this machine for pyiceberg, on the disk before a commit names them: neither pyarrow nor fsspec syncs what
it writes, and a power cut would leave a catalog that points to an empty file."""

from __future__ import annotations

import os
import re
from io import BufferedReader
from io import FileIO as RawFile
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from kctl_agent.storage.lake.folder.local import sync_file

__all__ = ["NotOfTable", "SyncedFileIO", "local_path"]


class NotOfTable(PermissionError):
    """A location that is not below the table's folder. An OSError, so that pyiceberg lets a file be that it would
    remove after a commit."""


def local_path(location: str) -> Path:
    """Of a location as engines write it: `file:///a`, `file:/a`, `/a`; nothing in it is escaped. Raises NotOfTable."""
    path = re.sub(r"^file:/+", "/", location)
    if not path.startswith("/"):
        raise NotOfTable(f"{location} is no file of this machine")
    return Path(path)


class SyncedFileIO(FileIO):
    """Of files below one folder, which its properties name: pyiceberg makes one by its name (`py-io-impl`).

    Locations come from metadata, which every writer of the table may set: one that leads elsewhere, also by way of
    links, raises NotOfTable.
    """

    FOLDER = "kctl.folder"

    def new_input(self, location: str) -> _File:
        return _File(location, self._path(location))

    def new_output(self, location: str) -> _File:
        return _File(location, self._path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._path(location if isinstance(location, str) else location.location).unlink(missing_ok=True)

    def _path(self, location: str) -> Path:
        folder = self.properties[self.FOLDER]
        path = local_path(location).resolve()
        if Path(folder).resolve() not in path.parents:
            raise NotOfTable(f"{location} is not below {folder} (storage.uri), where all files of the table must be")
        return path


class _File(InputFile, OutputFile):
    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return BufferedReader(RawFile(self._path))

    def create(self, overwrite: bool = False) -> OutputStream:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return _Synced(self._path, "w" if overwrite else "x")

    def to_input_file(self) -> _File:
        return self


class _Synced(RawFile):
    """On the disk, and its name in the folder, once it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._path = path

    def write(self, content: Any) -> int:
        """All of it: the kernel writes what there is room for, and pyiceberg does not look at how much that was."""
        left = memoryview(content).cast("B")
        size = len(left)
        while left:
            left = left[super().write(left) :]
        return size

    def close(self) -> None:
        if self.closed:
            return
        try:
            os.fsync(self.fileno())
        finally:
            super().close()
        sync_file(self._path.parent)

    def __exit__(self, *_: Any) -> None:
        self.close()
