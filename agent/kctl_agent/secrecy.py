"""Names of secret settings, and a check that a file with a secret is not open to every user."""

import errno
import os
import stat
from pathlib import Path

SECRET_NAMES = "(?i)secret|passw|token|credential|access[.]?key|account[.]?key|keystore[.]key|jaas"  # noqa: S105 - names, no secret
"""Names of secret settings, for `spark.redaction.regex` and our own views."""

_OTHERS = stat.S_IRWXO


def read_private(path: Path) -> str:
    """Reads a file with a secret. The file's group may have access, because container platforms provide secrets that
    way. Raises UnicodeDecodeError. Raises OSError, for example if all users have access."""
    with path.open(encoding="utf-8") as file:
        _judge(os.fstat(file.fileno()), path)
        return file.read()


def check_private(path: Path) -> None:
    """Checks a secret file that OpenSSL or Java will read. Raises OSError, for example if all users have access."""
    _judge(path.stat(), path)


def _judge(found: os.stat_result, path: Path) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode) and mode & _OTHERS:
        reason = f"every user of this machine may open it (mode {mode:04o}): chmod o= {path}"
        raise PermissionError(errno.EACCES, reason, str(path))
