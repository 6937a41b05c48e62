"""One command sets everything up: the Makefile, scripts/setup, .ci/run and the lock of the Python packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
LOCK = (ROOT / "requirements.lock").read_text()
TOOLS_OF_SETUP = ["bash", "dirname", "sed", "grep", "env"]


def make(*arguments: str, directory: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def normalised(requirement: str) -> str:
    """The name in `Some_Name[extra] >= 1`, as PEP 503 compares names."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def locked_names() -> set[str]:
    return {normalised(line) for line in LOCK.splitlines() if "==" in line}


def test_make_alone_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony

    listed = re.findall(r"^  make ([a-z-]+) +\S", make(), re.MULTILINE)

    assert listed == phony[1].split()


def test_every_target_that_the_issue_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))

    assert targets >= {"setup", "demo", "check", "test", "test-long", "bench", "bench-long", "lock", "clean", "help"}


def test_make_test_checks_first_then_goes_from_the_fastest_tier_to_the_slowest() -> None:
    planned = make("--dry-run", "test")

    steps = ["ruff format --check", "ruff check", "/mypy", "lint-imports"]
    steps += [f"tests/{tier}" for tier in ("unit", "project", "integration", "acceptance")]
    positions = [planned.index(step) for step in steps]
    assert positions == sorted(positions)


def test_make_test_hands_args_on_to_each_tier_and_they_win() -> None:
    planned = re.findall(r"pytest (.+) tests/(\w+)$", make("--dry-run", "test", "ARGS=-x -n 0"), re.MULTILINE)

    assert [tier for _, tier in planned] == ["unit", "project", "integration", "acceptance"]
    assert all(options.endswith(" -x -n 0") for options, _ in planned)
    assert [tier for options, tier in planned if "-n 2 --dist loadfile" in options] == ["unit", "integration"]


def test_ci_runs_make_test_and_says_that_it_is_ci() -> None:
    script = ROOT / ".ci" / "run"

    lines = script.read_text().splitlines()

    assert os.access(script, os.X_OK)
    assert lines[-2:] == ["export CI=true", "exec make test"]


@pytest.mark.parametrize("script", ["scripts/setup", ".ci/run"])
def test_shell_scripts_are_strict_and_parse(script: str) -> None:
    subprocess.run(["bash", "-n", ROOT / script], check=True)

    assert "set -euo pipefail\n" in (ROOT / script).read_text()


def test_set_up_runs_once_and_again_when_the_lock_changes(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "agent/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    setup = tmp_path / "scripts" / "setup"
    python = tmp_path / ".venv" / "bin" / "python"
    for program, says in ((setup, "SETUP RAN"), (python, "JARS: $*")):
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho "{says}"\n')
        program.chmod(0o755)

    first, second = make("setup", directory=tmp_path), make("setup", directory=tmp_path)
    stamp = (tmp_path / ".venv" / ".setup-done").stat().st_mtime
    os.utime(tmp_path / "requirements.lock", (stamp + 1, stamp + 1))
    third = make("setup", directory=tmp_path)

    assert first.splitlines() == third.splitlines() == ["SETUP RAN", "JARS: -m kctl.jars fetch"]
    assert second.splitlines() == ["JARS: -m kctl.jars fetch"]


def test_every_locked_package_has_hashes_and_no_place() -> None:
    blocks = re.split(r"\n(?=\S)", LOCK.strip())

    assert all(re.fullmatch(r"[a-z0-9._-]+==\S+( ; .+)? \\\n.*--hash=sha256:.*", b, re.DOTALL) for b in blocks)
    assert "://" not in LOCK
    assert "index" not in LOCK


def required() -> list[str]:
    """What the two distributions need at run time."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    agent = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text())["project"]
    of_agent = [*agent["dependencies"], *(each for extra in agent["optional-dependencies"].values() for each in extra)]
    return [*root["dependencies"], *of_agent]


def test_everything_asked_for_is_locked() -> None:
    asked = [line for line in (ROOT / "requirements.in").read_text().splitlines() if line and not line.startswith("#")]
    asked += required()
    for project in (ROOT / "pyproject.toml", ROOT / "agent" / "pyproject.toml"):
        asked += tomllib.loads(project.read_text())["build-system"]["requires"]

    missing = {normalised(requirement) for requirement in asked} - locked_names() - {"kctl-agent"}

    assert missing == set()


def test_what_the_distributions_need_has_a_lower_bound_and_the_tested_version_fits() -> None:
    locked = dict(re.findall(r"^(\S+?)==(\S+)", LOCK, re.MULTILINE))
    wanted = [Requirement(each) for each in required() if not each.startswith("kctl-agent")]

    unbounded = [each.name for each in wanted if not any(part.operator == ">=" for part in each.specifier)]
    untested = [str(each) for each in wanted if locked[canonicalize_name(each.name)] not in each.specifier]

    assert (unbounded, untested) == ([], [])


def run_setup(tmp_path: Path, stand_ins: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """scripts/setup on a machine that has these programs and nothing else: neither Java nor Python."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS_OF_SETUP:
        found = shutil.which(tool)
        assert found
        (programs / tool).symlink_to(found)
    for name, script in stand_ins.items():
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": str(programs), "HOME": str(tmp_path)}
    return subprocess.run(
        [ROOT / "scripts" / "setup"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_without_java_and_apt_get_the_package_is_named(tmp_path: Path) -> None:
    done = run_setup(tmp_path, {"id": "echo 1000"})

    assert done.returncode == 1
    assert "Java 17 or newer is missing" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr


def test_without_java_and_without_rights_the_exact_command_is_named(tmp_path: Path) -> None:
    done = run_setup(tmp_path, {"id": "echo 1000", "apt-get": "exit 9", "sudo": "exit 1"})

    assert done.returncode == 1
    assert "sudo apt-get install openjdk-17-jre-headless" in done.stderr


def test_with_apt_get_the_first_java_on_offer_is_installed_and_said(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    install = f"""
        echo "$*" >>{tmp_path}/calls
        [[ "$*" = *install* ]] || exit 0
        printf '#!/bin/sh\\necho version \\\\"21.0.1\\\\" >&2\\n' >{java}; {shutil.which("chmod")} +x {java}"""
    offers = '[ "$2" = openjdk-21-jre-headless ]'

    done = run_setup(tmp_path, {"id": "echo 0", "apt-get": install, "apt-cache": offers})

    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:2] == ["-qq update", "-qq install -y --no-install-recommends openjdk-21-jre-headless"]
    assert "Java 17 or newer is missing: installing openjdk-21-jre-headless with apt-get" in done.stderr
    assert "error: Python 3.11, 3.12 or 3.13 is missing" in done.stderr
