"""What a demo needs beside Python packages: Java, the locked jars, a Redis for `--storage redis`. Looked for first."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec

from kctl.errors import StartError
from kctl.jars import fetch, java_command
from kctl.jars.progress import shown_on

__all__ = ["bring_parts"]


def bring_parts(storage: str) -> None:
    """Fetch the jars that are missing, with progress on stderr; at once when nothing is missing.

    Raises:
        StartError: what cannot be fetched is missing; its JavaMissing and JarsMissing likewise.
    """
    if storage == "redis":
        _need_redis()
    java_command()
    with shown_on(sys.stderr) as progress:
        fetch(progress=progress)


def _need_redis() -> None:
    if shutil.which("redis-server") is None:
        raise StartError(
            "`--storage redis` starts a redis-server, and there is none on the PATH: install one (on Debian or Ubuntu: "
            "sudo apt-get install redis-server), or leave `--storage redis` away"
        )
    if find_spec("redis") is None:
        raise StartError(
            "`--storage redis` needs redis-py: pip install 'kctl-agent[redis]', or leave `--storage redis` away"
        )
