"""Reads the log of a process as a stream of bytes: its end, and what follows.

The master moves the older part of a large log to NAME.log.1 while it is written (`kctl/master/process_log.py`); that
file and then the log are the stream.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

from kctl.regular_files import open_regular, rotated

_CHUNK_BYTES = 64 * 1024


def _open(path: Path) -> BinaryIO:
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def tail(path: Path, lines: int) -> tuple[bytes, int]:
    """Returns the last lines, and the position of the end. Raises OSError."""
    with _open(path) as log:
        end = log.seek(0, os.SEEK_END)
    if lines == 0:
        return b"", end
    data = _from_end(path, end, lines)
    if data.count(b"\n", 0, -1) < lines and rotated(path).exists():
        data = _from_end(rotated(path), rotated(path).stat().st_size, lines) + data
    return b"".join(data.splitlines(keepends=True)[-lines:]), end


def _from_end(path: Path, end: int, lines: int) -> bytes:
    parts: list[bytes] = []
    found = 0
    with _open(path) as log:
        while end > 0 and found <= lines:
            begin = max(0, end - _CHUNK_BYTES)
            log.seek(begin)
            parts.append(log.read(end - begin))
            found += parts[-1].count(b"\n")
            end = begin
    return b"".join(reversed(parts))


class Follower:
    """Reads what is appended after a position, across rotations."""

    def __init__(self, path: Path, position: int, settled_seconds: float = 1.0) -> None:
        """A NAME.log.1 newer than `settled_seconds` may belong to a rotation in progress."""
        self._path = path
        self._file = _open(path)
        self._position = position
        self._settled_seconds = settled_seconds
        self._older = self._inode_of_older()

    def read(self) -> bytes:
        """Returns about 64 KiB of new bytes, and after a rotation the unread rest of the older file; b"" if there is
        nothing new, or during a rotation."""
        unread = b""
        if self._inode_of_older() != self._older:
            if not self._is_settled():
                return b""
            if not self._is_replaced():
                unread = self._take_up_rotation()
        elif os.fstat(self._file.fileno()).st_size < self._position:  # truncated
            self._position = 0
        self._file.seek(self._position)
        data = self._file.read(_CHUNK_BYTES)
        self._position += len(data)
        if not data and not unread and self._is_replaced():
            self._file.close()
            self._file, self._position, self._older = _open(self._path), 0, self._inode_of_older()
        return unread + data

    def close(self) -> None:
        self._file.close()

    def _take_up_rotation(self) -> bytes:
        self._older = self._inode_of_older()
        with _open(rotated(self._path)) as moved:
            size = moved.seek(0, os.SEEK_END)
            moved.seek(min(self._position, size))
            unread = moved.read()
        self._position = max(0, self._position - size)
        if self._position > os.fstat(self._file.fileno()).st_size:  # part of a flood was dropped
            self._position = 0
        return unread

    def _is_settled(self) -> bool:
        state = os.stat(rotated(self._path))
        return time.time() - max(state.st_mtime, state.st_ctime) >= self._settled_seconds

    def _inode_of_older(self) -> int | None:
        try:
            return os.stat(rotated(self._path)).st_ino
        except FileNotFoundError:
            return None

    def _is_replaced(self) -> bool:
        """Whether the log was moved aside as a whole because its process restarted."""
        try:
            return os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False
