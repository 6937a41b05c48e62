"""The log file of a process: it, its JVM and its executors append to it, and it is kept within bounds while they run.

They share the open file, and it must outlive the master, so neither a pipe through the master nor a new file for each
will do. As `logrotate` does with `copytruncate`, what is too old is copied to NAME.log.1 and then removed from the
file's beginning; but `fallocate(FALLOC_FL_COLLAPSE_RANGE)` removes exactly what was copied (ext4, XFS), where a
truncation would lose what is written in between.
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

from kctl.regular_files import open_regular, rotated

log = logging.getLogger(__name__)

LOG_LIMIT_BYTES = 16 * 1024 * 1024
"""The size of a log above which all but the end goes to NAME.log.1, replacing the one there."""
_FLOOD_LIMITS = 4
"""Limits that go into NAME.log.1 at most: of a flood that is faster than the rotation the oldest part is dropped."""
KEPT_BYTES = 64 * 1024
"""The bytes that a rotation leaves in the log, so that its last lines are still found where they were."""
_COPY_BYTES = 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_TAIL_BYTES = 8 * 1024
_TAIL_LINE_CHARACTERS = 400
_COLLAPSE_RANGE = 0x08
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessLog:
    """The log of one incarnation of a process. From any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._start = 0
        """Place in the file where this incarnation began."""

    def open(self) -> BinaryIO:
        """Opens the log for a process about to start. One that is too large is moved aside whole: nobody writes to it.
        Raises OSError: it cannot be written."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_size > LOG_LIMIT_BYTES:
                self.path.replace(rotated(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_regular(self.path, _APPEND), "ab", buffering=0)
        self._start = file.seek(0, os.SEEK_END)
        return file

    def rotate(self) -> int:
        """See `rotate`."""
        with self._lock:
            removed = rotate(self.path)
            self._start = max(0, self._start - removed)
            return removed

    def last_lines(self, count: int) -> list[str]:
        """Returns the last lines that this incarnation wrote: not empty, shortened, free of control characters."""
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
    """Rotates logs that have grown too large; one that cannot be is reported once, and tried again each time."""

    def __init__(self) -> None:
        self._failing: set[Path] = set()

    def __call__(self, logs: Iterable[ProcessLog]) -> None:
        """Rotates logs. Blocking: a copy of some 16 MiB."""
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
    """Moves all but the last lines of a log above the limit to NAME.log.1 while processes append to it; returns how
    many bytes went. A line may begin in one file and end in the other; together they are what was written. Raises
    OSError: it cannot be read, copied or shortened; then nothing is lost."""
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
            os.fdatasync(file.fileno())  # or the collapse does it, while all that write wait
            _copy(file, copy, max(0, end - _FLOOD_LIMITS * limit), end)
            copy.replace(rotated(path))
        finally:
            copy.unlink(missing_ok=True)
        if _collapse(file, end):
            return end
        return _truncate(file, rotated(path), end)


def is_own_output(path: Path) -> bool:
    """Whether our stdout or stderr is appended to this file."""
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
    """Removes the first bytes of a file; False where the file system cannot (tmpfs, overlays over it, NFS)."""
    failed = _LIBC.fallocate(file.fileno(), _COLLAPSE_RANGE, ctypes.c_int64(0), ctypes.c_int64(size))
    return not failed


def _truncate(file: BinaryIO, older: Path, begin: int) -> int:
    """Copies the rest too, then empties the file. What is written between the last read and the truncation is lost."""
    with open(open_regular(older, os.O_WRONLY | os.O_APPEND), "ab") as out:
        while data := os.pread(file.fileno(), _COPY_BYTES, begin):
            out.write(data)
            begin += len(data)
        out.flush()
        os.ftruncate(file.fileno(), 0)
    return begin
