"""Iceberg's own implementation, which reads tables of kctl in tests, and is their REST catalog: locked as the jars of
the packages are, in a lock that users do not have. `python -m tests.iceberg_jars` fetches what is missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kctl.errors import KctlError
from kctl.jars import Jar, fetch_jars, jars_dir
from kctl.jars.lock import parse_lock
from kctl.jars.progress import shown_on

__all__ = ["iceberg_jars", "iceberg_lock"]


def iceberg_lock() -> tuple[Jar, ...]:
    return parse_lock(Path(__file__).with_name("iceberg.lock").read_text(encoding="utf-8"))


def iceberg_jars() -> list[Path]:
    """All present: fetched where they are missing. Raises JarsMissing, JavaMissing."""
    with shown_on(sys.stderr) as progress:
        fetch_jars(iceberg_lock(), progress)
    return [jars_dir() / jar.file_name for jar in iceberg_lock()]


if __name__ == "__main__":
    try:
        iceberg_jars()
    except KctlError as error:
        sys.exit(f"error: {error}")
