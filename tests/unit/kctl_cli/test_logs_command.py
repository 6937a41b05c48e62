from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.cli.fleet.log_files import Follower
from kctl.master import process_log
from tests.command_lines import Kctl, Master
from tests.configurations import KAFKA
from tests.conftest import eventually
from tests.replies import status_json
from tests.servers.scripted_agent import Answers


@pytest.fixture
def logs(short_dir: Path) -> Path:
    (short_dir / "kctl.toml").write_text(KAFKA)
    (short_dir / "logs").mkdir()
    (short_dir / "logs" / "worker-0.log").write_text("".join(f"line {number}\n" for number in range(100)))
    return short_dir / "logs"


@pytest.fixture
def show(kctl: Kctl, logs: Path) -> Kctl:
    return lambda *words: kctl("logs", *words, "-c", str(logs.parent / "kctl.toml"))


def test_the_last_lines_are_shown_while_no_master_runs_with_those_moved_aside(show: Kctl, logs: Path) -> None:
    assert show("worker-0", "--limit", "2").out == "line 98\nline 99\n"
    assert show("worker-0").out.startswith("line 50\n")
    assert show("worker-0", "--limit", "0").out == ""

    with (logs / "worker-0.log").open("a") as log:
        log.writelines(f"{number} {'x' * 5000}\n" for number in range(100))
    long = show("worker-0", "--limit", "30").out.splitlines()
    assert [line.split()[0] for line in long] == [str(number) for number in range(70, 100)]

    (logs / "worker-0.log").rename(logs / "worker-0.log.1")
    (logs / "worker-0.log").write_text("new\n")
    assert [line.split()[0] for line in show("worker-0", "--limit", "3").out.splitlines()] == ["98", "99", "new"]


def test_a_running_master_reports_where_the_log_is(kctl: Kctl, master: Master, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.log"
    path.write_text("here\n")
    master({"status": Answers({"rows": [status_json(name="worker-7", log=str(path))]})})

    assert kctl("logs", "worker-7").out == "here\n"


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["once", "followed"])
def test_a_link_or_pipe_in_place_of_a_log_is_rejected_at_once(show: Kctl, logs: Path, follow: tuple[str, ...]) -> None:
    """kctl would read a link with the rights of the fleet's owner, and wait for a pipe."""
    log = logs / "worker-0.log"
    log.rename(logs / "secret")
    log.symlink_to(logs / "secret")
    linked = show("worker-0", *follow)
    log.unlink()
    os.mkfifo(log)
    piped = show("worker-0", *follow)

    for ran, why in ((linked, "it is a symbolic link"), (piped, "it is not a regular file")):
        assert (ran.code, ran.out, ran.err) == (1, "", f"kctl: the log {log} cannot be read: {why}\n")


def test_a_name_without_a_log_here_is_rejected_with_those_that_have_one(show: Kctl) -> None:
    ran, master = show("worker-9"), show("master")

    assert (ran.code, ran.err) == (2, "kctl: there is no log of worker-9, only of worker-0\n")
    assert (master.code, "`kctl start --daemon`" in master.err) == (2, True)

    shown = show("node-2/worker-0")

    assert (shown.code, "run `kctl logs worker-0` on node-2" in shown.err, shown.out) == (2, True, "")


@pytest.mark.shows("`kctl logs` follows several processes and the master across rotations")
def test_the_logs_of_several_and_of_the_master_are_distinguished_by_their_names(show: Kctl, logs: Path) -> None:
    (logs / "master.log").write_text("action=running\naction=ended")

    assert show("worker-0", "master", "-n", "2").out.splitlines() == [
        "worker-0 | line 98",
        "worker-0 | line 99",
        "master   | action=running",
        "master   | action=ended",
    ]
    assert show("-n", "1").out.splitlines() == ["master   | action=ended", "worker-0 | line 99"]


def lines_of(numbers: range) -> bytes:
    return b"".join(b"line %d\n" % number for number in numbers)


@pytest.mark.parametrize("is_collapsed", [True, False], ids=["collapsed", "truncated"])
def test_a_log_is_read_on_across_rotations(is_collapsed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_collapsed:
        monkeypatch.setattr(process_log, "_collapse", lambda *_: False)
    path, written, read = tmp_path / "log", b"", b""
    path.write_bytes(b"")
    follower = Follower(path, 0, settled_seconds=0.0)
    with path.open("ab", buffering=0) as out:
        for number in range(60):
            part = lines_of(range(number * 3000, number * 3000 + 3000))
            out.write(part)
            written += part
            if number % 3:  # sometimes a rotation comes before everything is read
                while data := follower.read():
                    read += data
            process_log.rotate(path, 128 * 1024)
    while data := follower.read():
        read += data
    follower.close()

    assert read == written


def test_follow_goes_on_when_the_log_is_moved_aside(logs: Path, tmp_path: Path) -> None:
    log = logs / "worker-0.log"
    with (tmp_path / "out").open("wb") as out:
        words = ["-c", str(logs.parent / "kctl.toml"), "logs", "worker-0", "-f", "--limit", "1"]
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
