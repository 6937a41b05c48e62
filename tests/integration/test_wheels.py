"""`pip install` of `kctl-agent`, `kctl` and `kctl[spark]` brings what each needs, and no other package."""

import json
import re
import signal
import subprocess
import time
import tomllib
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.checkpoint_faults import NEXT_OFFSETS, RECORDED, copied
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.wheels import ROOT, build_wheels, clean_environment, install, make_environment

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


@pytest.mark.shows("`pip install kctl-agent` installs no other package, and its socket works")
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


@pytest.mark.alone
@pytest.mark.shows(
    "exporter, groups, kafka and checkpoint run without PySpark, pandas and pyarrow, and the exporter shows the lag of "
    "a checkpoint within 30 s of `pip install`"
)
def test_an_installed_kctl_watches_a_cluster_without_java(wheels: Path, short_dir: Path, broker: KafkaBroker) -> None:
    topics.commit(broker.bootstrap_servers, "billing", "orders", {0: 0})
    topics.produce(broker.bootstrap_servers, "orders", {0: 20, 1: 20})
    job = copied(RECORDED / "4.2.0" / "plain", short_dir / "job")
    programs, home = make_environment(short_dir / "venv"), short_dir / "home"
    home.mkdir()
    (home / "kctl.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\ngroup = "fleet"\ntopics = ["orders"]\n'
        f'[checkpoints.report]\nuri = "{job}"\n'
    )
    command: dict[str, Any] = {"cwd": home, "env": clean_environment(HOME=str(home), PATH=str(home)), "text": True}

    def kctl(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([programs / "kctl", *words], capture_output=True, check=False, **command)

    def shows_the_lag() -> bool:
        answer = json.loads(kctl("group", "report", "--url", url, "-o", "json").stdout or "{}")
        found = {row["partition"]: row["remaining_count"] for row in answer.get("rows", ())}
        return (found.get(0), found.get(1)) == (20 - NEXT_OFFSETS, 20 - NEXT_OFFSETS) or bool(print(answer))

    began = time.monotonic()
    install(programs, "kctl", wheels)
    installed_at = time.monotonic()
    (site_packages,) = (short_dir / "venv").glob("lib/python*/site-packages")
    with subprocess.Popen(
        [programs / "kctl", "exporter", "-c", "kctl.toml", "--set", "http.port=0"], stderr=subprocess.PIPE, **command
    ) as exporter:
        assert exporter.stderr is not None
        url = next(found[1] for line in exporter.stderr if (found := re.search(r"http=(\S+)", line)))
        eventually(shows_the_lag, 30 - (time.monotonic() - began), "the lag of the checkpoint")
        took = time.monotonic() - began
        eventually(lambda: "billing" in kctl("groups", "--url", url).stdout, 30, "the exporter has the group")
        exporter.send_signal(signal.SIGTERM)

    installed = {path.name.split("-")[0] for path in site_packages.glob("*.dist-info")}
    assert not installed & {"pyspark", "pandas", "pyarrow", "deltalake", "py4j"}
    size = sum(file.stat().st_size for file in site_packages.rglob("*") if file.suffix != ".pyc")
    of_numpy = sum(file.stat().st_size for file in site_packages.glob("numpy*/**/*") if file.suffix != ".pyc")
    print(
        f"lag after {took:.1f} s, installed in {installed_at - began:.1f} s; "
        f"{size / 1e6:.1f} MB, of which numpy {of_numpy / 1e6:.1f}"
    )
    assert size < 90e6
    assert size - of_numpy < 35e6
    assert "billing" in kctl("kafka", "groups", "-b", broker.bootstrap_servers).stdout
    assert kctl("checkpoint", "show", job, "-b", broker.bootstrap_servers, "-o", "json").returncode == 0
    for words in (("start", "-c", "kctl.toml"), ("demo", "--for", "1")):
        refused = kctl(*words)
        assert refused.returncode in (2, 16), refused.stderr
        assert "pip install 'kctl[spark]'" in refused.stderr


def test_the_wheels_hold_their_packages_with_their_files_and_nothing_else(wheels: Path) -> None:
    (agent,), (control,) = wheels.glob("kctl_agent-*.whl"), wheels.glob("kctl-*.whl")

    assert {name.split("/")[0] for name in names_in(agent)} == {"kctl_agent", "kctl_agent-0.1.0.dist-info"}
    assert {name.split("/")[0] for name in names_in(control)} == {"kctl", "kctl-0.1.0.dist-info"}
    assert {"kctl/jars/broker.lock", "kctl/demo/broker-log4j2.properties", "kctl/py.typed"} <= names_in(control)
    assert "kctl_agent/spark/java/kctl/TokenServerSocket.class" in names_in(agent)
    assert all("extra == " in line for line in required_by(agent))
    assert "kctl-agent==0.1.0" in required_by(control)
    assert "kctl-agent[worker]==0.1.0; extra == 'spark'" in required_by(control)
