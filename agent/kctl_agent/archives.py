"""A JVM's class archive: its name, whether it may be used, where it is recorded; for worker and demo broker."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def options(path: Path) -> tuple[str, ...]:
    """Returns the Java options that use the archive, where it was recorded. Newer Javas move it to another address at
    each start, as an obstacle for an attacker who can already write to their memory (JDK-8294323). They patch it for
    that: of the 150 MB of Spark's 118 are written to then, else 52; and 0.1 s."""
    return f"-XX:SharedArchiveFile={path}", "-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"


def fingerprint(files: Iterable[Path]) -> str:
    """Returns a hash of these files by what a JVM itself compares: paths, sizes and times of change. Raises OSError."""
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


@contextmanager
def recording(path: Path, kept: int) -> Iterator[Path]:
    """Yields a file for a JVM to write its archive into, in a folder of its own that is removed afterwards. Once
    written it becomes `path`, and the `kept` newest archives there stay, those of other Javas and jars among them.
    Raises OSError: it cannot be kept there; RuntimeError: the JVM wrote none, as one that is no HotSpot."""
    with TemporaryDirectory(prefix=".record-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, path.name)
        yield fresh
        if not fresh.exists():
            raise RuntimeError("this Java has written no class archive")
        fresh.replace(path)
    kind = path.name.partition("-")[0]
    archives = sorted(path.parent.glob(f"{kind}-*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in archives[:-kept]:
        old.unlink(missing_ok=True)
