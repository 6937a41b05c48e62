"""What a demo needs is brought or refused before anything is started, and before a folder is made."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from kctl.cli.entry import run
from kctl.errors import JarsMissing, JavaMissing


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo would make its folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def only_on_the_path(programs: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    programs.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(programs))


def test_a_port_that_is_taken_is_refused(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = run(["demo", "--broker-only", "--port", port])

    assert (code, list(temporary.iterdir())) == (13, [])
    assert f"--port {port} cannot be used, or is taken: choose another" in capsys.readouterr().err


def test_without_java_the_demo_reports_that_first(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only_on_the_path(tmp_path / "bin", monkeypatch)
    monkeypatch.delenv("JAVA_HOME", raising=False)

    code = run(["demo"])

    assert (code, os.listdir(temporary)) == (JavaMissing.exit_code, [])
    assert "there is no `java` on the PATH" in capsys.readouterr().err


@pytest.mark.shows("`kctl demo` fetches missing jars; without Java it prints how to install it")
def test_missing_jars_are_fetched_and_without_a_repository_the_demo_names_the_reason(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KCTL_MAVEN_REPOSITORY", str(tmp_path / "nothing"))

    code = run(["demo"])

    reported = capsys.readouterr().err.splitlines()
    assert (code, os.listdir(temporary)) == (JarsMissing.exit_code, [])
    assert reported[0].startswith("jars: downloading ")
    assert "jars could not be downloaded from file:" in reported[-1]
