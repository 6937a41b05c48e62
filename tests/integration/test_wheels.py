"""`pip install kctl-agent` alone: the socket half, and not one other package."""

from __future__ import annotations

import subprocess
import tomllib
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from kctl.jars.lock import USUAL, read_lock
from tests.wheels import ROOT, build_wheels, clean_environment, install, make_environment, maven_repository

SERVES = """
import importlib, sys, time
from pathlib import Path
for module in sys.argv[1:]:
    importlib.import_module(module)
import kctl_agent
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
with AgentServer(Path("run"), "guest") as agent:
    agent.publish(Snapshot(time.monotonic(), WorkerReply.starting("guest", "worker")))
    assert Path("run/guest.sock").is_socket()
named = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(name for name in named if not name.startswith("_")), Path(kctl_agent.__file__).parent)
"""


def socket_half() -> list[str]:
    """The modules that the rule of the checks names so."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (modules,) = (each["source_modules"] for each in contracts if each["name"].startswith("the socket half"))
    return list(modules)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    build_wheels(directory)
    return directory


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def required_by(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []


@pytest.mark.shows("`pip install kctl-agent` brings no other package, and its socket serves")
def test_the_agent_s_wheel_serves_with_nothing_but_the_standard_library(wheels: Path, short_dir: Path) -> None:
    programs = make_environment(short_dir / "venv")

    install(programs, "kctl-agent", wheels)
    served = subprocess.run(
        [programs / "python", "-I", "-W", "error", "-c", SERVES, *socket_half()],
        cwd=short_dir, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert served.returncode == 0, served.stderr
    (site_packages,) = (short_dir / "venv").glob("lib/python*/site-packages")
    assert served.stdout.strip() == f"['kctl_agent'] {site_packages / 'kctl_agent'}"
    assert [path.name for path in site_packages.glob("*.dist-info")] == ["kctl_agent-0.1.0.dist-info"]


@pytest.mark.shows("an installed `kctl` fetches, verifies and keeps its jars without the repository")
@pytest.mark.timeout(900)  # where uv's cache is empty, PySpark is downloaded and built
def test_an_installed_kctl_fetches_and_verifies_its_jars_without_the_repository(wheels: Path, short_dir: Path) -> None:
    programs, home = make_environment(short_dir / "venv"), short_dir / "home"
    repository = maven_repository(short_dir / "maven")
    home.mkdir()

    def kctl(*words: str) -> subprocess.CompletedProcess[str]:
        variables = clean_environment(HOME=str(home), KCTL_MAVEN_REPOSITORY=str(repository))
        return subprocess.run(
            [programs / "kctl", *words], cwd=home, env=variables, capture_output=True, text=True, check=False
        )

    install(programs, "kctl", wheels)
    fetched, verified = kctl("jars", "fetch"), kctl("jars", "verify")

    jars = len({jar for lock in USUAL for jar in read_lock(lock)})
    assert fetched.stdout == f"{jars} downloaded, all in {home / '.cache' / 'kctl' / 'jars'}\n", fetched.stderr
    assert fetched.stderr.startswith(f"jars: downloading {jars} ")
    assert f"jars: {jars} of {jars}, " in fetched.stderr
    assert verified.stdout == f"0 downloaded, all in {home / '.cache' / 'kctl' / 'jars'}\n"
    assert kctl("demo", "--help").returncode == 0


def test_the_wheels_hold_their_packages_with_their_files_and_nothing_else(wheels: Path) -> None:
    (agent,), (control,) = wheels.glob("kctl_agent-*.whl"), wheels.glob("kctl-*.whl")

    assert {name.split("/")[0] for name in names_in(agent)} == {"kctl_agent", "kctl_agent-0.1.0.dist-info"}
    assert {name.split("/")[0] for name in names_in(control)} == {"kctl", "kctl-0.1.0.dist-info"}
    assert {"kctl/jars/broker.lock", "kctl/demo/broker-log4j2.properties", "kctl/py.typed"} <= names_in(control)
    assert "kctl_agent/spark/java/kctl/OwnUserServerSocket.class" in names_in(agent)
    assert all("extra == " in line for line in required_by(agent))
    assert "kctl-agent[worker]==0.1.0" in required_by(control)
