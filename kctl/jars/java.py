"""Finds the Java to run, and checks its version."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from kctl.errors import JavaMissing

MINIMUM_JAVA = 17  # Spark 4.2 and Kafka 4.3 are compiled for it

_INSTALL = (
    "install one with `sudo apt-get install openjdk-17-jre-headless` (newer systems: openjdk-21-jre-headless), "
    "or set JAVA_HOME to a Java 17 or newer"
)


def java_command() -> Path:
    """Returns $JAVA_HOME/bin/java, or without JAVA_HOME the first `java` on the PATH. Raises JavaMissing if there is no
    Java 17 or newer. The first check takes 40 to 100 ms."""
    command = _find_java()
    version = _version_of(command)
    if version < MINIMUM_JAVA:
        raise JavaMissing(f"{command} is Java {version}, Spark and Kafka need {MINIMUM_JAVA} or newer: {_INSTALL}")
    return command


def _find_java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, but {command} cannot be run: {_INSTALL}")
        return command
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(f"there is no `java` on the PATH: {_INSTALL}")
    return Path(found)


@cache
def _version_of(command: Path) -> int:
    try:
        answer = subprocess.run(
            [command, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            # Otherwise Ctrl-C also ends Java, which would then seem to have no version.
            process_group=0,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{command} does not run ({error}): {_INSTALL}") from error
    # 'openjdk version "17.0.15" 2025-04-15' or 'java version "1.8.0_402"', and "Picked up JAVA_TOOL_OPTIONS" before it
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        raise JavaMissing(f"`{command} -version` does not name a version: {_INSTALL}")
    return int(match[1])
