"""Recording Spark's archive leaves no JVM."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.conftest import eventually
from tests.processes import alive, command_line

OPTION = "-XX:ArchiveClassesAtExit="
_RECORDS = """
import signal, sys
from kctl_agent.spark.class_archive import record
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
record()
"""


@pytest.mark.long
def test_a_jvm_of_spark_that_is_given_up_while_it_starts_ends_with_the_process() -> None:
    """PySpark alone leaves it running for ever: 2 such JVMs were found after two hours."""
    with subprocess.Popen([sys.executable, "-c", _RECORDS], stderr=subprocess.DEVNULL) as process:
        recorder = psutil.Process(process.pid)

        def jvms() -> list[psutil.Process]:
            """Except that of Spark's launcher."""
            children = recorder.children(recursive=True)
            return [each for each in children if any(word.startswith(OPTION) for word in command_line(each))]

        [jvm] = eventually(jvms, 60, "its JVM starts")
        process.terminate()
        assert process.wait(60) == 1

    eventually(lambda: not alive([jvm]), 60, "the JVM has ended")
