"""Locked jars of Delta for Spark, for tests and benchmarks. `python -m tests.delta_jars` fetches missing ones."""

import sys
from pathlib import Path

from kctl.errors import KctlError
from kctl.jars.ivy import fetch_jars
from kctl.jars.lock import Jar, jars_dir, parse_lock


def delta_lock() -> tuple[Jar, ...]:
    return parse_lock(Path(__file__).with_name("delta.lock").read_text(encoding="utf-8"))


def delta_jars() -> list[Path]:
    """Fetches missing jars. Raises JarsMissing, JavaMissing."""
    fetch_jars(delta_lock(), sys.stderr.write)
    return [jars_dir() / jar.file_name for jar in delta_lock()]


if __name__ == "__main__":
    try:
        delta_jars()
    except KctlError as error:
        sys.exit(f"error: {error}")
