"""The jars that kctl runs beside Python: locked by sha256, fetched once into a cache; and the Java that runs them.

`lock` has which and whether they are there, `fetcher` brings them, `ivy` is the download, `java` finds Java.
"""

from __future__ import annotations

from kctl.jars.fetcher import Fetched, fetch, fetch_jars
from kctl.jars.java import MINIMUM_JAVA, java_command, java_version
from kctl.jars.lock import LOCKS, USUAL, Jar, LockName, jar_paths, jars_dir, read_lock

__all__ = [
    "LOCKS",
    "MINIMUM_JAVA",
    "USUAL",
    "Fetched",
    "Jar",
    "LockName",
    "fetch",
    "fetch_jars",
    "jar_paths",
    "jars_dir",
    "java_command",
    "java_version",
    "read_lock",
]
