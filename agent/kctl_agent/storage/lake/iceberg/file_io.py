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

__all__ = ["SyncedFileIO", "local_path"]


def local_path(location: str) -> Path:
    """Of a location as engines write it: `file:///a`, `file:/a`, `/a`; nothing in it is escaped. Raises ValueError."""
    path = re.sub(r"^file:/+", "/", location)
    if not path.startswith("/"):
        raise ValueError(f"{location} is no file of this machine")
    return Path(path)


class SyncedFileIO(FileIO):
    """pyiceberg makes one by its name (`py-io-impl`)."""

    def new_input(self, location: str) -> _File:
        return _File(location)

    def new_output(self, location: str) -> _File:
        return _File(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        local_path(location if isinstance(location, str) else location.location).unlink(missing_ok=True)


class _File(InputFile, OutputFile):
    def __len__(self) -> int:
        return local_path(self.location).stat().st_size

    def exists(self) -> bool:
        return local_path(self.location).exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return BufferedReader(RawFile(local_path(self.location)))

    def create(self, overwrite: bool = False) -> OutputStream:
        path = local_path(self.location)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _Synced(path, "w" if overwrite else "x")

    def to_input_file(self) -> _File:
        return self


class _Synced(RawFile):
    """On the disk, and its name in the folder, once it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._path = path

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            super().close()
            sync_file(self._path.parent)

    def __exit__(self, *_: Any) -> None:
        self.close()
