"""Records class archives of Kafka's broker and a worker's Spark if they are missing: `python -m tests.record_classes`.
A JVM writes its archive at its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from kctl.children import PRIVATE, dies_with_parent, python_module, safe_environment
from kctl.errors import KctlError
from kctl_agent.spark.class_archive import recording
from tests.servers.kafka_broker import KafkaBroker, archive_options, archive_path, archives_dir

KEPT = 3  # archives of other Javas and jars, which this user's other environments may run
DUMP_SECONDS = 120.0


def record() -> Path:
    """Records the broker's archive, or replaces an unusable one. Raises OSError if it cannot be kept, KctlError without
    jars or Java, RuntimeError if this Java has written none."""
    path = archive_path()
    if archive_options():
        return path
    archives_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    with recording(path, KEPT) as fresh:
        broker = KafkaBroker(fresh.with_name("broker"), java_options=(f"-XX:ArchiveClassesAtExit={fresh}",))
        broker.start()
        try:
            broker.stop(DUMP_SECONDS)
        finally:
            broker.kill()
    return path


def main() -> int:
    os.umask(PRIVATE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the temporary files are removed
    try:
        record()
    except (KctlError, OSError, RuntimeError) as error:
        sys.stderr.write(f"going on without a class archive of the broker: {error}\n")
    if _record_worker():
        sys.stderr.write("going on without a class archive of the workers\n")
    return 0


def _record_worker() -> int:
    # The control plane imports no worker code, so another process records.
    command = [*dies_with_parent("TERM"), *python_module("kctl_agent.spark.class_archive")]
    with subprocess.Popen(
        command, env=safe_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            return process.wait()
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
