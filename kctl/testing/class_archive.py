"""An archive of the classes of Kafka's broker as a JVM has loaded and checked them, 50 MB beside the jars' cache.

Java calls it class data sharing (JEP 350). With it a broker answers in two thirds of the time. The name of the file
names which Java and which jars it is of, so that others get one of their own; a JVM checks it, too, and goes on without
one that does not fit. `kctl.demo.record_classes` makes it.
"""

from __future__ import annotations

from pathlib import Path

from kctl.jars import jar_paths, jars_dir, java_command
from kctl_agent.archives import fingerprint, is_private, options

__all__ = ["archive_path", "archives_dir", "java_options"]

_QUIETLY = "-Xlog:cds*=off"


def archives_dir() -> Path:
    """Returns the folder where archives are kept."""
    return jars_dir().parent / "classes"


def archive_path() -> Path:
    """Returns where the archive of this Java and these jars is, or would be. Raises JarsMissing and JavaMissing."""
    return archives_dir() / f"broker-{fingerprint([java_command().resolve(), *jar_paths('broker')])}.jsa"


def java_options() -> tuple[str, ...]:
    """Returns the Java options that use the archive; none without one that only its user can have written."""
    path = archive_path()
    return (*options(path), _QUIETLY) if is_private(path) else ()
