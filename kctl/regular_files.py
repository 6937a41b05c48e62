"""Opens a file that another process keeps, and nothing that was put in its place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["open_regular"]


def open_regular(path: Path, flags: int) -> int:
    """The descriptor of a regular file that is there; never waits. Raises OSError: also for a symbolic link, a pipe or
    a folder of that name."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
