"""Secrets: which settings are ones, and files with them, refused when every user of the machine can open them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

SECRET_NAMES = "(?i)secret|passw|token|credential|access[.]?key|account[.]?key|keystore[.]key|jaas"  # noqa: S105 - names, no secret
"""Names of settings with secrets: as `spark.redaction.regex`, and for views of ours."""

_OTHERS = stat.S_IRWXO


def read_private(path: Path) -> str:
    """Reads a file with a secret. A group may have it: container platforms hand secrets out like that. Raises OSError:
    it cannot be read, or it is open to all; `strerror` has which; UnicodeDecodeError: it is no text."""
    with path.open(encoding="utf-8") as file:
        _judge(os.fstat(file.fileno()), path)
        return file.read()


def check_private(path: Path) -> None:
    """Checks a file that somebody else reads, such as OpenSSL or Java. Raises OSError as `read_private`."""
    _judge(path.stat(), path)


def _judge(found: os.stat_result, path: Path) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and mode & _OTHERS:
        reason = f"every user of this machine may open it (mode {mode:04o}): chmod o= {path}"
        raise PermissionError(errno.EACCES, reason, str(path))
