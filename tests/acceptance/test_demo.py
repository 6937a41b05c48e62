"""`kctl demo` starts everything, prints its counts, and leaves no process or file."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.command_lines import run_process
from tests.conftest import eventually

Demo = Callable[..., "subprocess.Popen[str]"]
START_SECONDS = 150.0


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


def test_it_answers_in_another_terminal_and_ctrl_c_ends_it_with_all_stored_once(demo: Demo, short_dir: Path) -> None:
    place = short_dir / "demo"
    process = demo("--workers", "1", "--partitions", "3", "--rate", "500", "-o", "json")

    eventually(lambda: total_rows() or process.poll() is not None, START_SECONDS, "a batch is stored")
    assert process.poll() is None, process.communicate()[1]
    about = place / "run" / "master.json"
    rows = json.loads(run_process("rpc", "offset_checker", "-o", "json").stdout)["rows"]

    assert stat.S_IMODE(about.stat().st_mode) == 0o600
    assert json.loads(about.read_text()).keys() >= {"pid", "start_time", "version", "http_url"}
    assert [(row["topic"], row["partition"]) for row in rows] == [("demo", 0), ("demo", 1), ("demo", 2)]
    eventually(lambda: run_process("-c", str(place / "kctl.toml"), "rpc", "kafka_lag").returncode == 0)
    assert {"kctl.toml", "run", "data", "logs"} <= set(os.listdir(place))

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=150)
    summary = json.loads(out.splitlines()[-1])

    assert process.returncode == 0, err
    assert (summary["lost"], summary["duplicated"]) == (0, 0)
    assert summary["stored"] == summary["produced"] > 0
    assert summary.keys() >= {"largest_lag", "seconds_to_first_batch"}
    assert "Traceback" not in err
    assert os.listdir(place / "run") == []
    assert processes_in(place) == []
    assert run_process("rpc", "kafka_lag").returncode == 5


def total_rows() -> int:
    done = run_process("rpc", "workers", "-o", "json")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
    return sum(row["rows_total"] for row in rows)


@pytest.mark.parametrize("options", [("-o", "json"), ("--broker-only",)])
@pytest.mark.shows("Ctrl-C while the demo's broker starts ends everything at once")
def test_ctrl_c_while_the_broker_starts_ends_all_at_once(demo: Demo, short_dir: Path, options: tuple[str, ...]) -> None:
    process = demo(*options)
    eventually(lambda: processes_in(short_dir / "demo" / "broker"), what="the broker starts")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert processes_in(short_dir) == []


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
