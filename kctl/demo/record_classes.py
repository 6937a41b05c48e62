"""The recorder of class archives of Kafka's broker and of a worker's Spark, each by a JVM that writes it at its end.

    python -m kctl.demo.record_classes [--idle]

Does nothing where they are recorded already. `--idle`: with the processor time that nobody else wants.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from kctl.children import PRIVATE, python_module, safe_environment
from kctl.errors import KctlError
from kctl.testing.dies_with_parent import dies_with_parent
from kctl.testing.jvm import archive_path, archives_dir, java_options
from kctl.testing.kafka_broker import KafkaBroker
from kctl_agent.archives import recording

KEPT = 3
"""Archives of other Javas and jars that are kept, which other environments of this user may run."""
DUMP_SECONDS = 120.0
STOP_SECONDS = 10.0


def record() -> Path:
    """Records the broker's archive and returns where it is; replaces one that cannot be used.

    Raises OSError: it cannot be kept; KctlError: no jars, or no Java; RuntimeError: this Java has written none.
    """
    path = archive_path()
    if java_options():
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


class Recorder:
    """A recorder in a process of its own while the demo goes on; what is not done when the demo ends is given up."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts to record; does nothing when it has been started before."""
        if self._process is None:
            self._process = subprocess.Popen(
                [*dies_with_parent("TERM"), *python_module("kctl.demo.record_classes", "--idle")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=safe_environment(),
                start_new_session=True,
            )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its broker dies with it
            self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="records the classes of Kafka's broker and of Spark")
    parser.add_argument("--idle", action="store_true")
    if parser.parse_args().idle:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.umask(PRIVATE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what lies beside is removed
    try:
        record()
    except (KctlError, OSError, RuntimeError) as error:
        sys.stderr.write(f"going on without a class archive of the broker: {error}\n")
    if _record_worker():
        sys.stderr.write("going on without a class archive of the workers\n")
    return 0


def _record_worker() -> int:
    """Records in a process of its own: the control plane imports nothing of a worker. Returns its exit code."""
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
