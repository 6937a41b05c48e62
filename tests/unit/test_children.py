import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from kctl import daemon_threads, logs
from kctl.children import child_environment, python_module, safe_environment
from kctl.daemon_threads import DaemonThreads, on_disk
from kctl.jars.java import java_command
from kctl.master.launch import SINKER_COMMAND, WORKER_COMMAND

PLANTED = ("kctl", "kctl_agent", "kctl_agent/worker", "kctl_agent/sinker", "pyspark", "benchmarks")


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for package in PLANTED:
        folder = tmp_path / package
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("__init__.py", "__main__.py", "daemon.py"):
            (folder / name).write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'trace')!r}).touch()\n")
    return tmp_path


def run(command: Sequence[str], folder: Path) -> bool:
    subprocess.run(
        command, cwd=folder, env=safe_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return (folder / "trace").exists()


@pytest.mark.parametrize("path", ["", ":", "{absolute}:", ":{absolute}", ".", "./:{absolute}", "sub/.."])
def test_the_working_directory_is_not_inherited(planted: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("PYTHONPATH", path.format(absolute="/usr/share"))

    assert not run((sys.executable, "-c", "import benchmarks"), planted)
    assert safe_environment({"PYTHONPATH": path}).get("PYTHONPATH") is None


def test_absolute_entries_of_pythonpath_are_inherited() -> None:
    assert safe_environment({"PYTHONPATH": "/a::b:/c:"})["PYTHONPATH"] == "/a:/c"


@pytest.mark.shows("no child imports from the working directory or a relative entry of `PYTHONPATH`")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(WORKER_COMMAND, id="worker"),
        pytest.param(SINKER_COMMAND, id="sinker"),
        pytest.param(python_module("kctl", "--help"), id="master of start --daemon, and of the demo"),
        pytest.param((sys.executable, "-c", "import pyspark.daemon"), id="Spark's Python, by what it inherits"),
    ],
)
def test_no_child_runs_a_module_of_the_working_directory(planted: Path, command: Sequence[str]) -> None:
    assert not run(command, planted)
    subprocess.run([sys.executable, "-m", "kctl_agent.worker"], cwd=planted, capture_output=True, check=False)
    assert (planted / "trace").exists(), "without our flags it is run"


@pytest.mark.shows("secrets are on no command line, in no view, and not in the environment of handlers")
def test_a_worker_and_all_that_it_starts_inherit_the_safe_path_and_no_setting_or_password() -> None:
    harmless = {"KCTL_CACHE_DIR": "/var/cache/kctl", "OPERATIONS_API": "https://example.org", "PATH": "/usr/bin"}
    secrets = {
        "KCTL_SASL_PASSWORD": "hunter2",
        "KCTL_STORAGE_URL": "redis://:hunter2@host/0",
        "KCTL_SPARK_CONF": "spark.hadoop.fs.s3a.secret.key=hunter2",
    }

    assert child_environment(harmless | secrets) == harmless | {"PYTHONSAFEPATH": "1"}


BLOCKED = """
import threading
from kctl.daemon_threads import DaemonThreads
DaemonThreads(1, "t").submit(threading.Event().wait)
print("ends", flush=True)
"""


def test_work_returns_or_raises_unless_it_is_cancelled_before_its_turn() -> None:
    threads, gate, begun = DaemonThreads(1, "t"), threading.Event(), threading.Event()
    first = threads.submit(gate.wait)
    cancelled = threads.submit(begun.set)
    assert cancelled.cancel()
    gate.set()

    assert first.result(10)
    assert threads.submit(begun.is_set).result(10) is False
    with pytest.raises(KeyError):
        threads.submit(partial({}.pop, "x")).result(10)
    threads.close()


def test_a_process_ends_while_a_thread_waits() -> None:
    ran = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=True)

    assert ran.stdout == "ends\n"


async def test_a_hung_disk_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_threads, "DISK_SECONDS", 0.05)
    thawed, begun = threading.Event(), threading.Event()

    for work in (thawed.wait, begun.set):
        with pytest.raises(TimeoutError, match="the disk does not answer"):
            await on_disk(work)
    thawed.set()
    monkeypatch.undo()

    assert await on_disk(pow, 2, 3) == 8
    assert not begun.is_set(), "its caller has gone on without it"


def test_a_hung_disk_of_the_log_is_waited_for_at_the_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    thawed, lines = threading.Event(), list[str]()

    class Hung(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            thawed.wait()
            lines.append(record.getMessage())

    monkeypatch.setattr(logs, "_MOST_LINES", 3)
    monkeypatch.setattr(logging.root, "handlers", [Hung()])
    with logs.written_behind():
        for number in range(100):
            logging.warning("line %d", number)
        thawed.set()

    assert 3 <= len(lines) <= 5, "more are dropped"
    assert lines[:3] == [f"line {number}" for number in range(3)]


JAVA = """#!/bin/sh
cut -d' ' -f5 /proc/$$/stat > "$0.group"
echo 'openjdk version "17.0.15"' >&2
"""


def test_a_ctrl_c_of_the_terminal_does_not_reach_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_command() == java
    assert int(Path(f"{java}.group").read_text()) != os.getpgrp(), "it is in a process group of its own"
