from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kctl.children import child_environment, python_module, safe_environment
from kctl.master.launch import SINKER_COMMAND, WORKER_COMMAND

PLANTED = ("kctl", "kctl_agent", "kctl_agent/worker", "kctl_agent/sinker", "pyspark", "benchmarks")


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A working directory with modules of our names, which leave a trace if they run."""
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


def test_what_is_planted_is_found_by_a_python_without_our_flags(planted: Path) -> None:
    subprocess.run([sys.executable, "-m", "kctl_agent.worker"], cwd=planted, capture_output=True, check=False)

    assert (planted / "trace").exists(), "or the tests below could not fail"


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


@pytest.mark.shows("secrets are on no command line, in no view, and not in the environment of handlers")
def test_a_worker_and_all_that_it_starts_inherit_the_safe_path_and_no_setting_or_password() -> None:
    env = {
        "KCTL_SASL_PASSWORD": "hunter2",
        "KCTL_STORAGE_URL": "redis://:hunter2@host/0",
        "KCTL_SPARK_CONF": "spark.hadoop.fs.s3a.secret.key=hunter2",
        "KCTL_CACHE_DIR": "/var/cache/kctl",
        "OPERATIONS_API": "https://example.org",
        "PATH": os.environ["PATH"],
    }

    inherited = child_environment(env)

    assert inherited == {
        "KCTL_CACHE_DIR": "/var/cache/kctl",
        "OPERATIONS_API": "https://example.org",
        "PATH": os.environ["PATH"],
        "PYTHONSAFEPATH": "1",
    }
