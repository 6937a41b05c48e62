"""Both distributions as wheels, and empty environments for them, as a user without the repository has."""

import os
import subprocess
import sys
from pathlib import Path

from kctl.jars.lock import USUAL, jar_paths, read_lock

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).with_name("uv")
LOCK = ROOT / "requirements.lock"


def clean_environment(**more: str) -> dict[str, str]:
    hidden = ("KCTL_", "PYTHON", "VIRTUAL_ENV", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return kept | {"PATH": os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if ".venv" not in p)} | more


def _uv(*words: str | Path) -> None:
    # The set-up has filled uv's cache with all of the lock, so uv rarely downloads.
    for offline in (["--offline"], []):
        done = subprocess.run(
            [UV, *words, *offline], env=clean_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)


def build_wheels(directory: Path) -> None:
    for project in (ROOT / "agent", ROOT):
        options = ("--wheel", "--no-build-isolation", "--python", sys.executable)
        _uv("build", *options, "--out-dir", directory, project)


def make_environment(directory: Path) -> Path:
    _uv("venv", "--no-project", "--python", sys.executable, directory)
    return directory / "bin"


def install(bin_directory: Path, distribution: str, wheels: Path) -> None:
    locked = ("--constraint", LOCK, "--build-constraint", LOCK)
    _uv("pip", "install", "--python", bin_directory / "python", "--find-links", wheels, *locked, distribution)


def maven_repository(root: Path) -> Path:
    for lock in USUAL:
        for jar, path in zip(read_lock(lock), jar_paths(lock), strict=True):
            place = root / jar.group.replace(".", "/") / jar.artifact / jar.version / jar.file_name
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(path)
    return root
