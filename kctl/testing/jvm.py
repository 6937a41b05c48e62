"""JVMs of Kafka's programs: a class path, options to be ready soon and stay small, and an archive of their classes.

The archive, 50 MB beside the jars' cache, has the classes as a JVM has loaded and checked them: Java's class data
sharing (JEP 350). With it a broker answers in two thirds of the time. The name of the file names which Java and which
jars it is of, so that others get one of their own; a JVM checks it, too, and goes on without one that does not fit.
`kctl.demo.record_classes` makes it.
"""

from __future__ import annotations

from pathlib import Path

from kctl.jars.java import java_command
from kctl.jars.lock import jar_paths, jars_dir
from kctl_agent.archives import fingerprint, is_private, options

_LOG_CONFIG = Path(__file__).with_name("broker-log4j2.properties")
# C1 alone and the serial collector: a new broker answers after 2.2 s instead of 2.7 s, one of Kafka's tools is done
# after 0.76 s instead of 0.9 s (2 cores, Java 17, medians).
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_QUIETLY = "-Xlog:cds*=off"


def kafka_command(main_class: str, *arguments: str, heap: str = "256m", options: tuple[str, ...] = ()) -> list[str]:
    """Returns the command line of a Kafka program, from the jars of the lock `broker`; `options` are more for its JVM.

    Raises JarsMissing and JavaMissing.
    """
    class_path = ":".join(str(jar) for jar in jar_paths("broker"))
    logging = f"-Dlog4j2.configurationFile={_LOG_CONFIG}"
    java = [str(java_command()), *_QUICK_START, *options, f"-Xmx{heap}", logging]
    return [*java, "-cp", class_path, main_class, *arguments]


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
