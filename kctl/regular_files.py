"""Opens only regular files, without waiting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path, flags: int, *, is_link_fine: bool = False) -> int:
    """A file to write must be ours; a new one gets mode 0600. Raises OSError, also for pipes, folders, and links unless
    `is_link_fine`."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if is_link_fine else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if flags & os.O_ACCMODE != os.O_RDONLY and found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to uid {found.st_uid}", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def rotated(log: Path) -> Path:
    return log.with_name(log.name + ".1")
