"""`kctl logs`: the last lines, across a log that was moved aside, with and without a master, and what comes after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kctl_agent.scripted import Answers

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Kctl, Master


@pytest.fixture
def logs(short_dir: Path) -> Path:
    (short_dir / "kctl.toml").write_text('[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["t"]\n')
    (short_dir / "logs").mkdir()
    (short_dir / "logs" / "worker-0.log").write_text("".join(f"line {number}\n" for number in range(100)))
    return short_dir / "logs"


def test_the_last_lines_are_shown_while_no_master_runs(kctl: Kctl, logs: Path) -> None:
    config = str(logs.parent / "kctl.toml")

    assert kctl("logs", "worker-0", "-c", config, "--lines", "2").out == "line 98\nline 99\n"
    assert kctl("logs", "worker-0", "-c", config).out.startswith("line 50\n")
    assert kctl("logs", "worker-0", "-c", config, "--lines", "0").out == ""


def test_a_running_master_says_where_the_log_is(kctl: Kctl, master: Master, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.log"
    path.write_text("here\n")
    master({"status": Answers({"rows": [{"name": "worker-7", "log": str(path)}]})})

    assert kctl("logs", "worker-7").out == "here\n"


def test_lines_that_were_moved_aside_are_shown_too(kctl: Kctl, logs: Path) -> None:
    log = logs / "worker-0.log"
    log.rename(logs / "worker-0.log.1")
    log.write_text("new\n")

    ran = kctl("logs", "worker-0", "-c", str(logs.parent / "kctl.toml"), "--lines", "3")

    assert ran.out == "line 98\nline 99\nnew\n"


def test_a_name_without_a_log_is_refused_with_those_that_have_one(kctl: Kctl, logs: Path) -> None:
    ran = kctl("logs", "worker-9", "-c", str(logs.parent / "kctl.toml"))

    assert (ran.code, ran.err) == (2, "kctl: there is no log of worker-9; there are those of worker-0\n")


def test_a_long_log_is_read_from_its_end(kctl: Kctl, logs: Path) -> None:
    with (logs / "worker-0.log").open("a") as log:
        log.writelines(f"{number} {'x' * 5000}\n" for number in range(100))

    ran = kctl("logs", "worker-0", "-c", str(logs.parent / "kctl.toml"), "--lines", "30")

    assert [line.split()[0] for line in ran.out.splitlines()] == [str(number) for number in range(70, 100)]


def test_follow_goes_on_when_the_log_is_moved_aside(logs: Path, eventually: Callable[..., Any], tmp_path: Path) -> None:
    log = logs / "worker-0.log"
    with (tmp_path / "out").open("wb") as out:
        words = ["-c", str(logs.parent / "kctl.toml"), "logs", "worker-0", "-f", "--lines", "1"]
        following = subprocess.Popen([sys.executable, "-m", "kctl", *words], stdout=out)
    try:
        eventually(lambda: "line 99" in (tmp_path / "out").read_text())
        with log.open("a") as end:
            end.write("last words\n")
        eventually(lambda: "last words" in (tmp_path / "out").read_text())
        log.rename(logs / "worker-0.log.1")
        log.write_text("born again\n")
        eventually(lambda: "born again" in (tmp_path / "out").read_text())
    finally:
        following.terminate()
        following.wait()

    assert (tmp_path / "out").read_text() == "line 99\nlast words\nborn again\n"
