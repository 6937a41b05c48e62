import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.cli.fleet.logs import Follower
from kctl.master import process as process_module
from kctl_agent.paths import bind_socket, prepare_run_dir, process_identity
from tests.command_lines import Kctl, Master, Ran
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
    log = logs / "worker-0.log"
    log.rename(logs / "secret")
    log.symlink_to(logs / "secret")  # kctl would read it with the rights of the fleet's owner
    linked = show("worker-0", *follow)
    log.unlink()
    os.mkfifo(log)  # kctl would wait for it
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
        monkeypatch.setattr(process_module, "_collapse", lambda *_: False)
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
            process_module.rotate(path, 128 * 1024)
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


OBEYS = "lambda *_: sys.exit(0)"
IGNORES = "signal.SIG_IGN"
Process = subprocess.Popen[bytes]
Started = Callable[[str], Process]


@pytest.fixture
def run_dir(short_dir: Path) -> Path:
    (short_dir / "kctl.toml").write_text(KAFKA)
    return short_dir / "run"


@pytest.fixture
def stop(kctl: Kctl, run_dir: Path) -> Callable[..., Ran]:
    return lambda *words: kctl("stop", "-c", str(run_dir.parent / "kctl.toml"), *words)


@pytest.fixture
def started(run_dir: Path) -> Iterator[Started]:
    made: list[Process] = []

    def start(on_sigterm: str) -> Process:
        code = f"import signal, sys; signal.signal(signal.SIGTERM, {on_sigterm}); print(flush=True); signal.pause()"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        made.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        prepare_run_dir(run_dir)
        bind_socket(run_dir, "master", 1).socket.close()
        (run_dir / "master.pid").write_text(str(process.pid))
        (run_dir / "master.start").write_text(str(process_identity(process.pid).start_ticks))
        return process

    yield start
    for each in made:
        each.kill()
        each.communicate()


def test_stop_waits_for_the_end(stop: Callable[..., Ran], started: Started) -> None:
    running = started(OBEYS)

    ran = stop()

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"stopping fleet kctl (master pid {running.pid})\nstopped in ")
    assert running.wait(60) == 0


def test_stop_gives_up_and_names_what_is_left(stop: Callable[..., Ran], started: Started, run_dir: Path) -> None:
    stubborn = started(IGNORES)
    worker, guest = (bind_socket(run_dir, name, 1) for name in ("worker-0", "guest"))

    ran = stop("--timeout", "0.1")

    worker.close()
    guest.close()
    assert ran.code == 1
    assert f"is still stopping after 0.1 s; still there: worker-0 (pid {os.getpid()})\n" in ran.err
    assert stubborn.poll() is None


def test_stop_spares_another_process_with_the_pid(stop: Callable[..., Ran], started: Started, run_dir: Path) -> None:
    innocent = started("signal.SIG_DFL")
    (run_dir / "master.start").write_text("1")

    ran = stop()

    assert (ran.code, "is gone" in ran.err) == (5, True)
    assert innocent.poll() is None


@pytest.mark.shows("`kctl stop` never signals a process named by another user's pid file")
@pytest.mark.parametrize("is_ours", [True, False], ids=["open to all as /tmp is", "of another user"])
def test_a_pid_file_that_another_user_may_have_written_has_nothing_signalled(
    stop: Callable[..., Ran], started: Started, run_dir: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    victim = started("signal.SIG_DFL")
    run_dir.chmod(0o1777 if is_ours else 0o755)
    if not is_ours:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    ran = stop("--timeout", "0.2")

    assert ran.code == (2 if os.geteuid() == 0 else 5)
    assert "other users can write to it" in ran.err or "you are not allowed to stop" in ran.err
    assert victim.poll() is None


def test_stop_without_a_master_exits_5_and_names_the_reason(stop: Callable[..., Ran], run_dir: Path) -> None:
    absent = stop()
    run_dir.mkdir(mode=0o700)
    (run_dir / "master.pid").write_text("garbage")
    garbage = stop()

    assert (absent.code, "does not exist" in absent.err) == (5, True)
    assert (garbage.code, "does not name the master's process" in garbage.err) == (5, True)
