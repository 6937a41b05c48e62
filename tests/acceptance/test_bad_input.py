"""Bad input is one sentence on stderr and an exit code of its own, with nothing half-started left behind.

Everything here goes through the real command line and a real broker. What the master's own checks leave behind is also
held inside a process, in tests/integration/test_master.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.master.process import session_members
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.processes import alive
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.stranger import KCTL, NOBODY, needs_root, run_as_nobody

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TOPIC = f"orders-{os.getpid()}"

JAVA_11 = """#!/bin/sh
echo 'openjdk version "11.0.22" 2024-01-16' >&2
"""


@dataclass
class Bench:
    """A folder with a configuration that would start, and a way to run `kctl start` in it."""

    folder: Path
    servers: str
    env: dict[str, str] = field(default_factory=lambda: {**os.environ, "PYTHONPATH": str(ROOT)})

    @property
    def config(self) -> Path:
        return self.folder / "kctl.toml"

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def write(self, more: str = "") -> None:
        self.config.write_text(
            f'[kafka]\nbootstrap_servers = "{self.servers}"\ngroup = "bad-input"\ntopics = ["{TOPIC}"]\n'
            f"[http]\nport = 0\n{more}"
        )

    def start(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kctl", "start", "-c", str(self.config), *options]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, start_new_session=True
        )
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert session_members(process.pid) == [], "a process is left"
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def files(self) -> dict[str, int]:
        """Everything below the folder and in the list of running fleets, with its mode."""
        runtime = Path(self.env["XDG_RUNTIME_DIR"])
        found = [*self.folder.rglob("*"), *(runtime / "kctl").glob("*")]
        return {str(path): path.lstat().st_mode for path in found}

    def refused(self, exit_code: int, *options: str) -> str:
        """The one sentence with which `kctl start` refuses; the folder must be as it was before."""
        before = self.files()
        done = self.start(*options)
        assert done.returncode == exit_code, done.stderr
        assert done.stdout == ""
        assert self.files() == before
        sentence, *more = done.stderr.splitlines()
        assert more == []
        assert sentence.startswith("kctl: ")
        assert "Traceback" not in sentence
        return sentence.removeprefix("kctl: ")


@pytest.fixture
def bench(short_dir: Path, broker: KafkaBroker) -> Bench:
    if not topics.has_topic(broker.bootstrap_servers, TOPIC):
        topics.create_topic(broker.bootstrap_servers, TOPIC, 1)
    bench = Bench(short_dir, broker.bootstrap_servers)
    bench.write()
    return bench


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("[workers]\ncuont = 2\n", "there is no key `cuont` in [workers]; the nearest is `count`"),
        ("[wrokers]\ncount = 2\n", "there is no section [wrokers]; the nearest is `workers`"),
        ('[workers]\ncount = "two"\n', 'workers.count is "two", but it takes a whole number'),
        ("[workers\n", "line 7"),
    ],
    ids=["key", "section", "value", "syntax"],
)
def test_a_configuration_that_cannot_be_used_names_what_and_where(bench: Bench, more: str, expected: str) -> None:
    bench.write(more)

    sentence = bench.refused(2)

    assert sentence.startswith(f"{bench.config}: ")
    assert expected in sentence


def test_a_setting_that_does_not_exist_is_refused_as_flag_and_as_variable(bench: Bench) -> None:
    assert "`kafka.topcis`; the nearest is `kafka.topics`" in bench.refused(2, "--set", "kafka.topcis=orders")
    bench.env["KCTL_KAFKA_GRUOP"] = "x"
    assert "KCTL_KAFKA_GRUOP is not a setting; the nearest is `KCTL_KAFKA_GROUP`" in bench.refused(2)


def test_a_file_that_is_not_there_is_named(bench: Bench) -> None:
    bench.config.unlink()

    assert bench.refused(2) == f"there is no configuration file {bench.config}"


def test_a_topic_that_does_not_exist_is_named_with_the_broker(bench: Bench) -> None:
    sentence = bench.refused(11, "--set", f"kafka.topics={TOPIC},nonsense,nothing")

    assert sentence == f"topics nonsense, nothing do not exist on {bench.servers}: create them or correct kafka.topics"


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "no-such-host.invalid:9092"], ids=["refused", "no such host"])
def test_a_broker_that_cannot_be_reached_is_named(bench: Bench, servers: str) -> None:
    sentence = bench.refused(10, "--set", f"kafka.bootstrap_servers={servers}")

    assert sentence.startswith(f"no Kafka broker answers at {servers} (")
    assert sentence.endswith("start it, or correct kafka.bootstrap_servers")


def test_something_that_listens_but_is_no_broker_is_not_waited_for_long(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = f"127.0.0.1:{mute.getsockname()[1]}"

        assert f"no Kafka broker answers at {server}" in bench.refused(10, "--set", f"kafka.bootstrap_servers={server}")


def java_11(folder: Path) -> Path:
    java = folder / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA_11)
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("by", ["JAVA_HOME", "PATH"])
def test_a_java_that_is_too_old_is_named_with_its_version(bench: Bench, by: str) -> None:
    java = java_11(bench.folder)
    bench.env.pop("JAVA_HOME", None)
    if by == "JAVA_HOME":
        bench.env["JAVA_HOME"] = str(java.parent.parent)
    else:
        bench.env["PATH"] = f"{java.parent}:{bench.env['PATH']}"

    sentence = bench.refused(12)

    assert sentence.startswith(f"{java} is Java 11, Spark and Kafka need 17 or newer: install one with `")


def test_no_java_at_all_names_the_command_that_installs_one(bench: Bench) -> None:
    bench.env.pop("JAVA_HOME", None)
    bench.env["PATH"] = str(bench.folder)

    assert bench.refused(12).startswith(
        "there is no `java` on the PATH: install one with `sudo apt-get install openjdk"
    )


def test_a_port_that_is_taken_is_named(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        sentence = bench.refused(13, "--set", f"http.port={port}")

    assert sentence == f"port {port} on 127.0.0.1 is taken: set http.port to another one, or to 0 for any free one"


def test_a_run_dir_that_others_can_enter_is_refused_with_its_mode(bench: Bench) -> None:
    bench.run_dir.mkdir()
    bench.run_dir.chmod(0o750)

    sentence = bench.refused(14)

    assert f"run_dir {bench.run_dir} has mode 0750" in sentence
    assert sentence.endswith(f"chmod 700 {bench.run_dir}")


@needs_root
def test_a_run_dir_of_somebody_else_is_refused(bench: Bench) -> None:
    bench.run_dir.mkdir(mode=0o700)
    os.chown(bench.run_dir, NOBODY, NOBODY)

    assert (
        f"{bench.run_dir} belongs to nobody, and root acts for no other user: sudo -u nobody kctl …" in bench.refused(2)
    )


@needs_root
def test_a_run_dir_that_cannot_be_written_is_refused(bench: Bench) -> None:
    bench.folder.chmod(0o755)
    before = bench.files()

    done = run_as_nobody(KCTL, "start", "-c", str(bench.config), env=bench.env)

    assert done.returncode == 14
    assert done.stderr == (
        f"kctl: run_dir {bench.run_dir} cannot be made (Permission denied): choose one that you may write to\n"
    )
    assert bench.files() == before


def test_a_run_dir_that_is_no_directory_is_refused(bench: Bench) -> None:
    bench.run_dir.touch()

    assert bench.refused(14).startswith(f"run_dir {bench.run_dir} is not a directory")


def test_a_socket_path_of_108_bytes_is_refused_with_the_number(bench: Bench) -> None:
    room = 108 - len(f"{bench.folder}//worker-0.sock")
    run_dir = bench.folder / ("x" * room)

    sentence = bench.refused(14, "--set", f"fleet.run_dir={run_dir}")

    assert sentence.startswith(f"socket path {run_dir}/worker-0.sock has 108 bytes, the limit is 107")


@pytest.fixture
def fatal(make_fleet: MakeFleet) -> Callable[[str], Fleet]:
    """Starts a master whose one worker cannot start, because of this transform; returns it once that is reported. There
    is an engine only for a transform that is tried in a session of Spark."""

    def start(transform: str) -> Fleet:
        engine = {"engine": "own"} if transform.startswith("no_such_module:") else {}
        fleet = make_fleet(partitions=1, workers_more=f'transform = "{transform}"', **engine)
        fleet.start()
        eventually(lambda: is_fatal(fleet), START_SECONDS, "the worker is fatal")
        return fleet

    return start


def status(fleet: Fleet) -> list[dict[str, Any]]:
    """The rows of workers in `kctl status`."""
    return workers_of(asked(fleet))


def asked(fleet: Fleet) -> dict[str, Any]:
    """What `kctl status` prints; without rows while there is no master."""
    done = fleet.kctl("status", "-o", "json", exit_code=None)
    if done.returncode == 5:
        return {"rows": []}
    assert done.returncode in (0, 1, 3), done.stderr
    return json_of(done)


def workers_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in answer["rows"] if row["kind"] == "worker"]


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def is_fatal(fleet: Fleet) -> bool:
    fleet.check()
    is_settled = not fleet.has_engine or fleet.engine().get("state") == "running"  # it writes while it starts
    answer = asked(fleet)
    are_fatal = [row["state"] for row in workers_of(answer)] == ["fatal"]
    return is_settled and are_fatal and answer["verdict"]["level"] == "failing"  # that of the last collection


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ("no_such_module:clean", "workers.transform 'no_such_module:clean': there is no module no_such_module in "),
        pytest.param(
            "tests.acceptance.transforms:none",
            "workers.transform 'tests.acceptance.transforms:none' cannot be loaded:",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "tests.acceptance.transforms:drops_offsets",
            "tests.acceptance.transforms:drops_offsets drops offset; it must",
            marks=pytest.mark.long,
        ),
        ("tests.acceptance.transforms:shuffles", "tests.acceptance.transforms:shuffles moves records (Repartition);"),
        pytest.param(
            "tests.acceptance.transforms:sets_what_is_static",
            "the transform tests.acceptance.transforms:sets_what_is_static cannot set spark.sql.warehouse.dir: ",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_broken_transform_is_shown_by_status_and_not_tried_again(
    fatal: Callable[[str], Fleet], monkeypatch: pytest.MonkeyPatch, transform: str, why: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    fleet = fatal(transform)

    [row] = status(fleet)

    assert (row["pid"], row["restarts"], row["next_try_seconds"]) == (None, 0, None)
    assert why in row["last_error"]
    assert why in fleet.kctl("status", exit_code=1).stdout
    log = (fleet.directory / "logs" / "worker-0.log").read_text()
    assert why in log.splitlines()[-1]
    assert "Traceback" not in log, "the sentence is enough: no code of the user's was run"
    assert not [name for name in os.listdir(fleet.directory / "run") if name.startswith("worker")]
    master = json_of(fleet.kctl("status", "-o", "json", exit_code=1))["master"]["pid"]
    living = set(alive(psutil.Process(master).children(recursive=True)))
    assert living <= set(fleet.family()), "something is left that nobody supervises"


def test_a_second_master_on_one_run_dir_names_the_first(bench: Bench, fatal: Callable[[str], Fleet]) -> None:
    first = fatal("no_such_module:clean")
    pid = json_of(first.kctl("status", "-o", "json", exit_code=1))["master"]["pid"]

    sentence = bench.refused(15, "--set", f"fleet.run_dir={first.directory / 'run'}")

    assert re.match(rf"a master \(pid {pid}, run_dir .* already: ", sentence)
    assert [row["name"] for row in status(first)] == ["worker-0"]
    assert first.kctl("stop").returncode == 0
    assert os.listdir(first.directory / "run") == []
