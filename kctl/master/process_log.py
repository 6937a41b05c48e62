"""The log file of a process, to which it, its JVM and its executors append; kept within limits while they run.

They share the open file, which must outlive the master. Like `logrotate` with `copytruncate`, kctl copies old lines to
NAME.log.1 and removes them from the file's start: `fallocate(FALLOC_FL_COLLAPSE_RANGE)` removes exactly those (ext4,
XFS), whereas a truncation loses lines that are written meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from kctl.ownership import open_regular, rotated

log = logging.getLogger(__name__)

LOG_LIMIT_BYTES = 16 * 1024 * 1024
"""Above this size all but the end moves to NAME.log.1, replacing it."""
_FLOOD_LIMITS = 4
"""Maximum size of NAME.log.1 in limits; in a flood faster than the rotation, its oldest part is dropped."""
KEPT_BYTES = 64 * 1024
"""A rotation leaves this much in the log."""
_COPY_BYTES = 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_TAIL_BYTES = 8 * 1024
_TAIL_LINE_CHARACTERS = 400
_COLLAPSE_RANGE = 0x08
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessLog:
    """The log of one incarnation. For any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._start = 0

    def open(self) -> BinaryIO:
        """Moves a log that is too large aside as a whole. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_size > LOG_LIMIT_BYTES:
                self.path.replace(rotated(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_regular(self.path, _APPEND), "ab", buffering=0)
        self._start = file.seek(0, os.SEEK_END)
        return file

    def rotate(self) -> int:
        with self._lock:
            removed = rotate(self.path)
            self._start = max(0, self._start - removed)
            return removed

    def last_lines(self, count: int) -> list[str]:
        """The last lines of this incarnation, without empty lines and control characters."""
        try:
            with self._lock, open(open_regular(self.path, os.O_RDONLY), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return []
        lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
        return [line[:_TAIL_LINE_CHARACTERS] for line in lines if line][-count:]


class LogRotation:
    """Rotates logs that are too large; reports a failure once and retries each time."""

    def __init__(self) -> None:
        self._failing: set[Path] = set()

    def __call__(self, logs: Iterable[ProcessLog]) -> None:
        for each in logs:
            try:
                removed = each.rotate()
            except OSError as error:
                if each.path not in self._failing:
                    log.warning("action=log_not_rotated log=%s: %s", each.path, error.strerror)
                self._failing.add(each.path)
                continue
            self._failing.discard(each.path)
            if removed:
                log.info("action=log_rotated log=%s bytes=%d", each.path.name, removed)


def rotate(path: Path, limit_bytes: int | None = None) -> int:
    """Moves all but the last lines of a large log to NAME.log.1 while processes append; returns how many bytes. A line
    may span both files. Raises OSError; then nothing is lost."""
    limit = LOG_LIMIT_BYTES if limit_bytes is None else limit_bytes
    try:
        if os.lstat(path).st_size <= limit:
            return 0
        file = os.fdopen(open_regular(path, os.O_RDWR), "r+b", buffering=0)
    except FileNotFoundError:
        return 0
    with file:
        block = os.fstatvfs(file.fileno()).f_bsize
        end = max(0, os.fstat(file.fileno()).st_size - KEPT_BYTES) // block * block
        copy = path.with_name(path.name + ".1.new")
        try:
            os.fdatasync(file.fileno())  # otherwise the collapse does it, while all writers wait
            _copy(file, copy, max(0, end - _FLOOD_LIMITS * limit), end)
            copy.replace(rotated(path))
        finally:
            copy.unlink(missing_ok=True)
        if _collapse(file, end):
            return end
        return _truncate(file, rotated(path), end)


def is_own_output(path: Path) -> bool:
    try:
        own = os.stat(path)
    except OSError:
        return False
    return any(os.path.samestat(own, os.fstat(n)) and fcntl.fcntl(n, fcntl.F_GETFL) & os.O_APPEND for n in (1, 2))


def _copy(file: BinaryIO, target: Path, begin: int, end: int) -> None:
    mode = os.fstat(file.fileno()).st_mode & 0o777
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as out:
        while begin < end and (data := os.pread(file.fileno(), min(_COPY_BYTES, end - begin), begin)):
            out.write(data)
            begin += len(data)


def _collapse(file: BinaryIO, size: int) -> bool:
    """Removes the first bytes of a file; False if the file system cannot (tmpfs, overlays over it, NFS)."""
    failed = _LIBC.fallocate(file.fileno(), _COLLAPSE_RANGE, ctypes.c_int64(0), ctypes.c_int64(size))
    return not failed


def _truncate(file: BinaryIO, older: Path, begin: int) -> int:
    """Also copies the last lines, then empties the file. Lines written between the two steps are lost."""
    with open(open_regular(older, os.O_WRONLY | os.O_APPEND), "ab") as out:
        while data := os.pread(file.fileno(), _COPY_BYTES, begin):
            out.write(data)
            begin += len(data)
        out.flush()
        os.ftruncate(file.fileno(), 0)
    return begin
