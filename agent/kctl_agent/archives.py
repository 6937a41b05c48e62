"""What names a JVM's class archive, and whether one may be used; for the worker's and for the demo broker's."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

__all__ = ["fingerprint", "is_private"]


def fingerprint(files: Iterable[Path]) -> str:
    """Of these files by what a JVM itself compares: paths, sizes and times of change. Raises OSError."""
    digest = hashlib.sha256()
    for path in files:
        found = path.stat()
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def is_private(path: Path) -> bool:
    """Whether only this user, or root, can have written the file: a JVM runs what stands in it."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022
