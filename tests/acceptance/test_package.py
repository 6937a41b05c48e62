"""After `pip install kctl[spark]` into an empty environment, `kctl demo` runs without further steps."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kctl.jars.lock import USUAL, read_lock
from tests.wheels import build_wheels, clean_environment, install, make_environment, maven_repository

# PySpark is downloaded and built if uv's cache is empty.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def programs(short_dir: Path) -> Path:
    build_wheels(short_dir / "wheels")
    programs = make_environment(short_dir / "venv")
    install(programs, "kctl[spark]", short_dir / "wheels")
    return programs


@pytest.mark.shows("an installed `kctl` fetches, verifies and keeps its jars without the repository")
def test_an_installed_kctl_fetches_its_jars_and_runs_the_demo(programs: Path, short_dir: Path) -> None:
    place, home = short_dir / "empty", short_dir / "home"
    place.mkdir()
    home.mkdir()
    environment = clean_environment(
        HOME=str(home),
        XDG_RUNTIME_DIR=os.environ["XDG_RUNTIME_DIR"],
        TMPDIR=str(short_dir),
        KCTL_MAVEN_REPOSITORY=str(maven_repository(short_dir / "maven")),
    )

    def kctl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "kctl", *words], cwd=place, env=environment, capture_output=True, text=True, check=False
        )

    demo = kctl("demo", "--for", "5", "-o", "json")
    verified = kctl("jars", "verify")

    assert demo.returncode == 0, demo.stderr
    summary = json.loads(demo.stdout.splitlines()[-1])
    assert (summary["lost"], summary["duplicated"]) == (0, 0)
    assert summary["stored"] == summary["produced"] > 0
    jars = len({jar for lock in USUAL for jar in read_lock(lock)})
    assert demo.stderr.startswith(f"jars: downloading {jars} ")
    assert f"jars: {jars} of {jars}, " in demo.stderr
    assert verified.stdout == f"0 downloaded, all in {home / '.cache' / 'kctl' / 'jars'}\n"
    assert os.listdir(place) == []
