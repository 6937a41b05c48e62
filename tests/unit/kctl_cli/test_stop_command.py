from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl_agent.paths import bind_socket, prepare_run_dir, process_identity
from tests.command_lines import Kctl, Ran
from tests.configurations import KAFKA

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
def master(run_dir: Path) -> Iterator[Started]:
    """Starts a process that takes SIGTERM like this, as the master of `run_dir`."""
    started: list[Process] = []

    def start(on_sigterm: str) -> Process:
        code = f"import signal, sys; signal.signal(signal.SIGTERM, {on_sigterm}); print(flush=True); signal.pause()"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        prepare_run_dir(run_dir)
        bind_socket(run_dir, "master", 1).socket.close()
        (run_dir / "master.pid").write_text(f"{process.pid} {process_identity(process.pid).start_ticks}\n")
        return process

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_stop_waits_for_the_end(stop: Callable[..., Ran], master: Started) -> None:
    running = master(OBEYS)

    ran = stop()

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"stopping fleet kctl (master pid {running.pid})\nstopped in ")
    assert running.wait(60) == 0


def test_stop_gives_up_in_time_and_names_what_is_left(stop: Callable[..., Ran], master: Started, run_dir: Path) -> None:
    stubborn = master(IGNORES)
    worker, guest = (bind_socket(run_dir, name, 1) for name in ("worker-0", "guest"))

    ran = stop("--timeout", "0.1")

    worker.close()
    guest.close()
    assert ran.code == 1
    assert f"is still stopping after 0.1 s; still there: worker-0 (pid {os.getpid()})\n" in ran.err
    assert stubborn.poll() is None


def test_stop_spares_a_process_with_the_pid_of_a_master_that_is_gone(
    stop: Callable[..., Ran], master: Started, run_dir: Path
) -> None:
    innocent = master("signal.SIG_DFL")
    (run_dir / "master.pid").write_text(f"{innocent.pid} 1\n")

    ran = stop()

    assert (ran.code, "is gone" in ran.err) == (5, True)
    assert innocent.poll() is None


@pytest.mark.shows("`kctl stop` never signals a process named by another user's pid file")
@pytest.mark.parametrize("is_ours", [True, False], ids=["open to all as /tmp is", "of another user"])
def test_a_pid_file_that_another_user_may_have_written_has_nothing_signalled(
    stop: Callable[..., Ran], master: Started, run_dir: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """The file could name any process of ours, or of root's."""
    victim = master("signal.SIG_DFL")
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
