"""The place of a checkpoint: a local folder, or a prefix of a bucket by obstore. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kctl.config.clusters import place_hint
from kctl.errors import CheckpointUnreadable, UsageError

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

_FOLDERS = ("", "file")
_BUCKETS = ("s3", "s3a", "s3n")
_SETTING = "storage.credentials_file, or "
"""Part of a message about a fleet's table; a checkpoint uses AWS's own variables, files and roles."""


def place(uri: str) -> Folder:
    """Takes a path, `file://…`, or `s3://BUCKET/PREFIX`. Raises UsageError."""
    found = urlsplit(uri)
    if found.scheme in _FOLDERS:
        from kctl_agent.storage.lake.folder.local import LocalFolder

        return LocalFolder(Path(unquote(found.path) if found.scheme else uri).absolute())
    if found.scheme not in _BUCKETS or not found.netloc or not found.path.strip("/"):
        raise UsageError(f"{uri}: {place_hint(uri)}")
    try:
        from kctl_agent.storage.lake.folder.s3 import S3Folder
    except ImportError:
        raise UsageError(f"{uri}: S3 needs the package obstore: pip install obstore") from None
    storage = {"uri": f"s3://{found.netloc}{found.path}", "endpoint": None, "region": None, "credentials_file": None}
    return S3Folder.of(storage)


def store_of(uri: str) -> str:
    """Returns the bucket or mount of a checkpoint without accessing a disk, which may hang."""
    found = urlsplit(uri)
    if found.scheme in _BUCKETS:
        return found.netloc
    path = unquote(found.path) if found.scheme else uri
    mounts = [line.split()[4].rstrip("/") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return max((each for each in mounts if path == each or path.startswith(f"{each}/")), key=len, default="/")


@contextmanager
def reading(folder: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        why = (error.strerror or str(error)).replace(_SETTING, "")
        raise CheckpointUnreadable(f"{where} cannot be read: {why}") from error
