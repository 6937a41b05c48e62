"""`kctl demo` starts everything, prints its counts, and leaves no process or file."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.demo.fleet import DemoFleet
from kctl.jars.lock import USUAL, read_lock
from tests.command_lines import run_process
from tests.conftest import eventually
from tests.servers.redis_server import require_redis
from tests.wheels import build_wheels, clean_environment, install, make_environment, maven_repository

Demo = Callable[..., "subprocess.Popen[str]"]
Kctl = Callable[..., "subprocess.Popen[Any]"]
START_SECONDS = 240.0


@pytest.fixture
def demo(short_dir: Path) -> Iterator[Demo]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "kctl", "demo", "--dir", str(short_dir / "demo"), *options]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        )
        return started[-1]

    yield start
    for process in started:
        with process:  # closes its pipes
            process.terminate()


def processes_in(folder: Path) -> list[list[str]]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words):
            found.append(words)
    return found


@pytest.fixture
def installed(short_dir: Path) -> Kctl:
    build_wheels(short_dir / "wheels")
    programs = make_environment(short_dir / "venv")
    install(programs, "kctl[spark]", short_dir / "wheels")
    for name in ("empty", "home"):
        (short_dir / name).mkdir()
    environment = clean_environment(
        HOME=str(short_dir / "home"),
        XDG_RUNTIME_DIR=os.environ["XDG_RUNTIME_DIR"],
        TMPDIR=str(short_dir),
        KCTL_MAVEN_REPOSITORY=str(maven_repository(short_dir / "maven")),
    )
    return partial(subprocess.Popen, cwd=short_dir / "empty", env=environment, stdout=-1, stderr=-1, text=True)


@pytest.mark.timeout(900)  # PySpark is downloaded and built if uv's cache is empty.
@pytest.mark.shows("after `pip install kctl[spark]` into an empty environment, `kctl demo` runs without further steps")
@pytest.mark.shows("an installed `kctl` fetches, verifies and keeps its jars without the repository")
@pytest.mark.shows("`kctl demo` exits with 0 only if every message is stored exactly once")
@pytest.mark.shows("with `storage.mode = directly` workers call the handler, which gets every message once")
def test_the_demo_of_an_installed_kctl_answers_and_ctrl_c_ends_it_with_all_handled_once(
    installed: Kctl, short_dir: Path
) -> None:
    place, program = short_dir / "demo", short_dir / "venv" / "bin" / "kctl"

    def kctl(*words: str) -> tuple[int, str]:
        with installed([program, *words]) as process:
            out, _ = process.communicate()
            return process.returncode, out

    options = ("--dir", str(place), "--workers", "1", "--partitions", "3", "--rate", "500", "--storage", "directly")
    with installed([program, "demo", *options, "-o", "json"]) as process:
        eventually(lambda: has_rows(place) or process.poll() is not None, START_SECONDS, "a batch is stored")
        assert process.poll() is None, process.communicate()[1]
        about = place / "run" / "master.json"
        rows = json.loads(kctl("rpc", "offset_checker", "-o", "json")[1])["rows"]

        assert stat.S_IMODE(about.stat().st_mode) == 0o600
        assert json.loads(about.read_text()).keys() >= {"pid", "start_time", "version", "http_url"}
        assert [(row["topic"], row["partition"]) for row in rows] == [("demo", 0), ("demo", 1), ("demo", 2)]
        eventually(lambda: kctl("-c", str(place / "kctl.toml"), "rpc", "kafka_lag")[0] == 0)
        assert {"kctl.toml", "run", "data", "logs"} <= set(os.listdir(place))

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=150)

    assert process.returncode == 0, err
    all_is_handled_once(summary := json.loads(out.splitlines()[-1]))
    assert summary.keys() >= {"largest_lag", "seconds_to_first_batch"}
    assert "Traceback" not in err
    jars = len({jar for lock in USUAL for jar in read_lock(lock)})
    assert err.startswith(f"jars: downloading {jars} ")
    assert f"jars: {jars} of {jars}, " in err
    verified = kctl("jars", "verify")[1]
    assert verified == f"0 downloaded, all in {short_dir / 'home' / '.cache' / 'kctl' / 'jars'}\n"
    assert os.listdir(place / "run") == os.listdir(short_dir / "empty") == []
    assert processes_in(place) == []
    assert kctl("rpc", "kafka_lag")[0] == 5


def has_rows(place: Path) -> bool:
    answer = DemoFleet(place).ask("workers")  # costs less than a command
    return answer is not None and any(row["rows_total"] for row in answer["rows"])


def all_is_handled_once(summary: dict[str, Any]) -> None:
    assert summary["handled"] == summary["stored"] == summary["produced"] > 0
    nothing = ("lost", "duplicated", "handled_again", "dead")
    assert {name: summary[name] for name in nothing} == dict.fromkeys(nothing, 0)


@pytest.mark.long
@pytest.mark.shows("`kctl demo --for` has each message handled once by sinkers, from a file and from Redis")
@pytest.mark.parametrize("storage", ["file", "redis"])
def test_everything_that_is_produced_is_handled_once(storage: str, demo: Demo) -> None:
    if storage == "redis":
        require_redis()
    options = ("--storage", storage, "--sinkers", "2", "--workers", "1", "--partitions", "3", "--rate", "1000")

    process = demo("--for", "5", "-o", "json", *options)
    out, err = process.communicate(timeout=280)

    assert process.returncode == 0, err
    all_is_handled_once(json.loads(out.splitlines()[-1]))


@pytest.mark.shows("Ctrl-C while the demo's broker starts ends everything at once")
def test_ctrl_c_while_the_broker_starts_ends_all_at_once(demo: Demo, short_dir: Path) -> None:
    process = demo("-o", "json")
    eventually(lambda: processes_in(short_dir / "demo" / "broker"), what="the broker starts")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    # Python waits a quarter of a second for a process that it has killed.
    eventually(lambda: processes_in(short_dir) == [], 5.0, "all have ended")


@pytest.mark.shows("`kctl demo --broker-only` runs a temporary broker; `--dir` keeps its topics")
def test_a_broker_alone_answers_until_ctrl_c_and_has_its_topics_again(demo: Demo, short_dir: Path) -> None:
    port: list[str] = []
    for command in ("create-topic", "topic"):
        process = demo("--broker-only", *port)
        assert process.stdout is not None
        [servers] = re.findall(r"answers on (\S+);", process.stdout.readline())
        assert not port or servers.endswith(f":{port[1]}")
        port = ["--port", servers.rpartition(":")[2]]

        made = run_process("kafka", command, "mine", "-b", servers)

        process.send_signal(signal.SIGINT)
        assert (made.returncode, process.wait(20)) == (0, 0), made.stderr
    assert processes_in(short_dir) == []
