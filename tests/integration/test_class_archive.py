"""The class archive of the demo's broker: recorded by a real one, used by the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kctl.jars.lock import jars_dir
from tests.conftest import eventually
from tests.processes import alive, command_line
from tests.record_classes import KEPT, record
from tests.servers.kafka_broker import KafkaBroker, archive_options, archive_path, archives_dir


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of its own, with the jars that are there already."""
    jars = jars_dir()
    monkeypatch.setenv("KCTL_CACHE_DIR", str(tmp_path))
    (tmp_path / "jars").symlink_to(jars)
    return tmp_path


def mapped(broker: KafkaBroker) -> set[str]:
    return {each.path for each in psutil.Process(broker.pid).memory_maps()}


def test_a_broker_records_its_classes_and_the_next_starts_with_them(cache: Path, tmp_path: Path) -> None:
    assert archive_options() == ()
    (cache / "classes").mkdir()
    for number in range(KEPT):
        (cache / "classes" / f"broker-{number}.jsa").touch()

    path = record()

    assert path == archive_path()
    assert path.stat().st_mode & 0o022 == 0
    assert len(list(archives_dir().glob("*"))) == KEPT, "nothing is left beside, and older ones go"
    with KafkaBroker(tmp_path / "broker") as broker:
        assert str(path) in mapped(broker)
    assert record() == path


def test_a_broker_starts_without_an_archive_that_is_damaged(cache: Path, tmp_path: Path) -> None:
    archives_dir().mkdir()
    archive_path().touch(mode=0o600)
    archive_path().write_bytes(b"no archive")

    with KafkaBroker(tmp_path / "broker") as broker:
        assert broker.pid is not None
        assert str(archive_path()) not in mapped(broker)


def test_an_archive_that_others_can_write_is_not_used(cache: Path) -> None:
    archives_dir().mkdir()
    archive_path().touch()
    archive_path().chmod(0o622)

    assert archive_options() == ()


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
            """But for that of Spark's launcher."""
            children = recorder.children(recursive=True)
            return [each for each in children if any(word.startswith(OPTION) for word in command_line(each))]

        [jvm] = eventually(jvms, 60, "its JVM starts")
        process.terminate()
        assert process.wait(60) == 1

    eventually(lambda: not alive([jvm]), 60, "the JVM has ended")
