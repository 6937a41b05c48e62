"""Class archives of JVMs, for worker and demo broker: name, permissions, recording."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def options(path: Path) -> tuple[str, ...]:
    """Java options to use the archive at the address where it was recorded. Newer Javas move the archive at each start,
    to hinder attackers in the same memory (JDK-8294323). Moving it patches 118 of the 150 MB of Spark's archive instead
    of 52, and takes 0.1 s."""
    return f"-XX:SharedArchiveFile={path}", "-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"


def fingerprint(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        found = path.stat()
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def is_private(path: Path) -> bool:
    """Whether only this user or root can have written the file, whose contents a JVM runs."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


@contextmanager
def recording(path: Path, kept: int) -> Iterator[Path]:
    """Moves a JVM's archive from a temporary file to `path` and keeps the `kept` newest archives there. Raises OSError,
    RuntimeError (the JVM wrote none)."""
    with TemporaryDirectory(prefix=".record-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, path.name)
        yield fresh
        if not fresh.exists():
            raise RuntimeError("this Java wrote no class archive")
        fresh.replace(path)
    kind = path.name.partition("-")[0]
    archives = sorted(path.parent.glob(f"{kind}-*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in archives[:-kept]:
        old.unlink(missing_ok=True)
