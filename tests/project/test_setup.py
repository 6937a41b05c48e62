"""One command sets everything up: the Makefile, scripts/setup, .ci/run and the lock of the Python packages."""

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
LOCK = (ROOT / "requirements.lock").read_text()
TOOLS_OF_SETUP = ["bash", "dirname", "sed", "grep", "env", "awk", "rm", "mkdir"]


def make(*arguments: str, directory: Path = ROOT) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "ARGS"))}
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_test_runs_what_must_be_alone_by_itself() -> None:
    *side_by_side, alone = re.findall(r"pytest (.+)$", make("--dry-run", "test"), re.MULTILINE)
    marked = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if "mark.alone" in path.read_text()
    }

    assert all('"not long and not alone"' in each for each in side_by_side)
    assert '"alone and not long"' in alone
    assert "-n " not in alone
    assert marked - set(alone.split()) <= {"tests/project/test_setup.py"}


EACH_TIME = [
    "kctl jars fetch broker spark s3",
    "python -m tests.delta_jars",
    "python -m tests.servers.schema_registry",
    "python -m tests.record_classes",
]  # at once if nothing is missing


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "requirements.lock", "deploy/requirements.lock", "pyproject.toml", "agent/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for program in ("scripts/setup", ".venv/bin/python", ".venv/bin/kctl"):
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{path.name} $*"\n')
        path.chmod(0o755)
    return tmp_path


def test_set_up_runs_once_and_again_when_the_lock_changes(clone: Path) -> None:
    first, second = make("setup", directory=clone), make("setup", directory=clone)
    stamp = (clone / ".venv" / ".setup-done").stat().st_mtime
    os.utime(clone / "requirements.lock", (stamp + 1, stamp + 1))
    third = make("setup", directory=clone)

    assert first.splitlines() == third.splitlines() == ["setup tests", *EACH_TIME]
    assert second.splitlines() == EACH_TIME


@pytest.mark.shows("a demo installs the locked packages; with apt-get only Java and venv, after naming them")
def test_demo_and_unit_tests_set_up_what_they_need_and_no_more(clone: Path) -> None:
    (clone / ".venv" / "bin" / "pytest").write_text("#!/bin/sh\n")
    (clone / ".venv" / "bin" / "pytest").chmod(0o755)
    first, second = make("demo", "ARGS=--for 5", directory=clone), make("demo", directory=clone)

    assert first.splitlines() == ["setup demo", "kctl demo --for 5"]
    assert second.splitlines() == ["kctl demo"]
    assert make("unit", directory=clone).splitlines()[0] == "setup packages"
    assert make("setup", directory=clone).splitlines()[0] == "setup tests"
    assert not any(line.startswith("setup ") for line in make("unit", directory=clone).splitlines())


def required() -> list[str]:
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    agent = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text())["project"]
    of_agent = [*agent["dependencies"], *(each for extra in agent["optional-dependencies"].values() for each in extra)]
    return [*root["dependencies"], *of_agent]


def test_everything_asked_for_is_locked_with_a_lower_bound_that_fits() -> None:
    asked = [line for line in (ROOT / "requirements.in").read_text().splitlines() if line and not line.startswith("#")]
    asked += required()
    for project in (ROOT / "pyproject.toml", ROOT / "agent" / "pyproject.toml"):
        asked += tomllib.loads(project.read_text())["build-system"]["requires"]

    locked = dict(re.findall(r"^(\S+?)==(\S+)", LOCK, re.MULTILINE))
    names = {canonicalize_name(Requirement(each.partition(" #")[0]).name) for each in asked}
    missing = names - {canonicalize_name(name) for name in locked} - {"kctl-agent"}
    wanted = [Requirement(each) for each in required() if not each.startswith("kctl-agent")]
    unbounded = [each.name for each in wanted if not any(part.operator == ">=" for part in each.specifier)]
    untested = [str(each) for each in wanted if locked[canonicalize_name(each.name)] not in each.specifier]

    assert (missing, unbounded, untested) == (set(), [], [])


def run_setup(
    directory: Path, stand_ins: dict[str, str], what: str = "tests", tools: list[str] = TOOLS_OF_SETUP
) -> subprocess.CompletedProcess[str]:
    """The machine has these programs and nothing else: neither Java nor Python."""
    programs = directory / "bin"
    programs.mkdir()
    for tool in tools:
        found = shutil.which(tool)
        assert found
        (programs / tool).symlink_to(found)
    for name, script in stand_ins.items():
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (programs / name).chmod(0o755)
    for name in ("scripts/setup", "requirements.lock", "deploy/requirements.lock"):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    environment = {"PATH": str(programs), "HOME": str(directory)}
    return subprocess.run(
        [directory / "scripts" / "setup", what],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


WITH_JAVA = {"java": "echo 'version \"17.0.1\"' >&2"}
WITH_PYTHON = {"python3": 'case "$2" in *%d.%d*) echo 3.11 ;; *executable*) echo /usr/bin/python3 ;; esac'}
# Writes what it is called with to the set-up's own output. A .venv of it has a Python that has everything.
UV = {
    "uv": """echo "uv $*" >&2
        [ "$1" != venv ] || { mkdir -p .venv/bin; printf '#!/bin/sh\\nexit 0\\n' >.venv/bin/python; }"""
}
APT_GET = {"id": "echo 0", "apt-get": 'echo "apt-get $*" >&2', "apt-cache": "exit 0"}


@pytest.mark.parametrize("what", ["demo", "tests"])
def test_without_java_and_without_rights_the_exact_command_is_named(tmp_path: Path, what: str) -> None:
    done = run_setup(tmp_path, {"id": "echo 1000", "apt-get": "exit 9", "sudo": "exit 1"}, what)

    assert done.returncode == 1
    assert "sudo apt-get install openjdk-17-jre-headless" in done.stderr


@pytest.mark.shows("missing programs are installed with apt-get; otherwise the exact command is printed")
def test_with_apt_get_the_first_java_on_offer_is_installed_and_named(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    install = f"""
        echo "apt-get $*" >&2
        [[ "$*" = *install* ]] || exit 0
        printf '#!/bin/sh\\necho version \\\\"21.0.1\\\\" >&2\\n' >{java}; {shutil.which("chmod")} +x {java}"""
    offers = '[ "$2" = openjdk-21-jre-headless ]'

    done = run_setup(tmp_path, {"id": "echo 0", "apt-get": install, "apt-cache": offers})

    assert done.stderr.splitlines()[:4] == [
        "setup: Java 17 or newer is missing: asking apt-get for it",
        "apt-get -qq update",
        "setup: Java 17 or newer is missing: installing openjdk-21-jre-headless with apt-get",
        "apt-get -qq install -y --no-install-recommends openjdk-21-jre-headless",
    ]
    assert "Python 3.11, 3.12 or 3.13 is missing" in done.stderr


def test_a_demo_has_pythons_venv_module_installed_where_it_is_needed(tmp_path: Path) -> None:
    without_venv = {"python3": f'[[ "$2" != *ensurepip* && "$1" != -m ]] || exit 1\n{WITH_PYTHON["python3"]}'}

    done = run_setup(tmp_path, WITH_JAVA | APT_GET | without_venv, "demo")

    assert "setup: Python's venv module is missing: installing python3.11-venv with apt-get" in done.stderr
    assert re.findall("apt-get -qq install .* (.+)", done.stderr) == ["python3.11-venv"]


def test_a_demo_gets_the_packages_of_the_runtime_with_the_uv_on_the_path_and_none_of_apt_get(tmp_path: Path) -> None:
    done = run_setup(tmp_path, WITH_JAVA | WITH_PYTHON | UV | APT_GET, "demo", [*TOOLS_OF_SETUP, "chmod"])

    assert done.returncode == 0, done.stderr
    assert "apt-get" not in done.stderr
    assert "uv venv --quiet --python /usr/bin/python3 .venv" in done.stderr
    installed = re.findall(r"uv pip install --python .venv/bin/python --no-build-isolation (.+)", done.stderr)
    assert installed == [
        "--require-hashes --no-deps -r .venv/build.lock",
        "--require-hashes --no-deps -r deploy/requirements.lock",
        "--no-deps -e agent -e .",
    ]
    build = (tmp_path / ".venv" / "build.lock").read_text()
    assert {"setuptools", "hatchling", "editables"} <= {line.split("==")[0] for line in build.splitlines()}
    assert all(re.match(r"[a-z-]+==\S+ |    --hash=", line) for line in build.splitlines())


@pytest.mark.shows("`make demo` and `make test` need no other step; CI runs the same")
def test_the_tests_get_the_whole_lock_and_what_they_start(tmp_path: Path) -> None:
    masked_services = {"promtool": "exit 0", "amtool": "exit 0"}  # are there: this machine's systemd is let alone
    stand_ins = WITH_JAVA | WITH_PYTHON | UV | APT_GET | masked_services

    done = run_setup(tmp_path, stand_ins, "tests", [*TOOLS_OF_SETUP, "chmod"])

    assert done.returncode == 0, done.stderr
    assert " --require-hashes --no-deps -r requirements.lock" in done.stderr
    packages = re.findall("apt-get -qq install .* (.+)", done.stderr)
    assert packages == ["redis-server", "chromium", "chromium-driver"]
