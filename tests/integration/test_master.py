"""The whole master against a real broker: its end, as a service, and what a killed one leaves to the next."""

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl.config.load import load
from kctl.errors import AlreadyRunning
from kctl.master.process import session_members
from kctl.start.master import run
from tests.command_lines import run_process
from tests.conftest import eventually
from tests.integration.conftest import Master


@pytest.mark.shows("a second signal that kills workers does not exit with 0")
def test_a_second_signal_ends_workers_that_will_not_go(master: Callable[..., Any]) -> None:
    fleet = master(spark={"conf": {"KCTL_TEST_WORKER": "stubborn"}})
    pids = [row["pid"] for row in fleet.status().values()]

    fleet.process.send_signal(signal.SIGINT)
    eventually(lambda: set(fleet.states()) == {"stopping"})
    assert fleet.stop(signal.SIGINT) == 1, "workers were killed, which is no success"

    assert [session_members(pid) for pid in pids] == [[], []]
    assert os.listdir(fleet.run_dir) == []


def test_a_boot_failure_is_reported_and_the_others_question_is_still_answered(master: Callable[..., Any]) -> None:
    fleet = master(until="fatal", spark={"conf": {"KCTL_TEST_WORKER": "boot_failure"}})

    rows = eventually(lambda: (reply := fleet.ask("offset_checker")).result["rows"] and reply)

    assert [row["worker"] for row in rows.result["rows"]] == [None] * 4
    assert (rows.complete, rows.answered) == (False, ())
    assert fleet.status()["worker-0"]["last_error"] == "no such transform: module:function"
    assert fleet.stop() == 0


def test_a_failing_part_of_the_master_ends_all_of_it_by_name(master: Callable[..., Any], short_dir: Path) -> None:
    fleet = master()
    pids = [row["pid"] for row in fleet.status().values()]

    fleet.run_dir.rename(short_dir / "elsewhere")

    assert fleet.process.wait(60) == 1
    assert "action=failed task=collector: the master stops" in fleet.log.read_text()
    assert [session_members(pid) for pid in pids] == [[], []]


@pytest.mark.shows("a second master on one run_dir or data_dir is rejected")
def test_a_second_master_on_one_data_dir_names_the_first(master: Callable[..., Any], short_dir: Path) -> None:
    fleet = master()
    other = load(fleet.config, {}, {"fleet.run_dir": str(short_dir / "other"), "http.port": "0"})

    with pytest.raises(AlreadyRunning, match=rf"a master \(pid {fleet.process.pid}, run_dir {fleet.run_dir}\) uses "):
        run(other, fleet.config)

    left = fleet.status()["worker-0"]["pid"]
    os.kill(left, signal.SIGSTOP)
    fleet.stop(signal.SIGKILL)
    try:
        with pytest.raises(AlreadyRunning, match=rf"worker-0 of {fleet.run_dir} still runs as pid {left} and uses"):
            run(other, fleet.config)
    finally:
        os.kill(left, signal.SIGCONT)
    eventually(lambda: not session_members(left))


@pytest.mark.shows("systemd gets READY, WATCHDOG, RELOADING, STOPPING; `--daemon`; a second SIGTERM ends at once")
def test_systemd_is_notified_of_ready_watchdog_reload_and_stop(
    master: Callable[..., Master], short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(short_dir / "notify"))
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(short_dir / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")

        def heard(word: str) -> str:
            while word not in (text := systemd.recv(4096).decode()):
                pass
            return text

        fleet = master(workers={"count": 1})
        assert "STATUS=1 worker, 0 sinkers, http://127.0.0.1:" in heard("READY=1")
        heard("WATCHDOG=1")
        heard("WATCHDOG=1")
        fleet.process.send_signal(signal.SIGHUP)
        assert re.search(r"MONOTONIC_USEC=\d+", heard("RELOADING=1"))
        heard("READY=1")
        fleet.process.send_signal(signal.SIGTERM)
        heard("STOPPING=1")
        assert fleet.process.wait(60) == 0


def test_a_daemon_is_there_at_the_end_of_its_command(config_file: Callable[..., Path]) -> None:
    config = config_file(workers={"count": 0})

    begun = run_process("-c", str(config), "start", "--daemon", "--set", "log.level=DEBUG")
    try:
        assert begun.returncode == 0, begun.stderr
        pid = int(re.findall(r"master pid (\d+)", begun.stdout)[0])
        assert (config.parent / "run" / "master.pid").read_text() == f"{pid}\n"
        assert os.getsid(pid) == pid, "it outlives the terminal"
        assert "action=running fleet=kctl" in (config.parent / "logs" / "master.log").read_text()
        second = run_process("-c", str(config), "start", "--daemon")
        assert second.returncode == 15
        assert f"a master (pid {pid}, run_dir " in second.stderr
    finally:
        assert run_process("-c", str(config), "stop").returncode == 0
    assert session_members(pid) == []


LINES = b"".join(b"line %d of a chatty JVM\n" % number for number in range(700_000))  # 17 MB, above the limit


def append(log: Path) -> None:
    with log.open("ab") as out:
        out.write(LINES)


def test_the_log_of_a_running_process_is_rotated_and_it_goes_on_writing_it(master: Callable[..., Master]) -> None:
    fleet = master(workers={"count": 1})
    log = Path(fleet.status()["worker-0"]["log"])
    older = log.with_name("worker-0.log.1")
    append(log)

    eventually(lambda: older.exists() and log.stat().st_size < 1_000_000, 30, "the log is short again")

    assert LINES in older.read_bytes() + log.read_bytes()
    assert "action=log_rotated log=worker-0.log bytes=" in fleet.log.read_text()
    shown = run_process("-c", str(fleet.config), "logs", "worker-0", "-n", "20000").stdout
    assert shown.encode() == b"".join(LINES.splitlines(keepends=True)[-20_000:])


@pytest.mark.shows("the next master ends processes that a dead master had started")
def test_a_worker_hanging_from_a_killed_master_keeps_no_new_one_from_starting(master: Callable[..., Master]) -> None:
    fleet = master(workers={"count": 2, "stop_timeout_seconds": 1.0})
    hanging, other = (fleet.status()[name]["pid"] for name in ("worker-0", "worker-1"))
    os.kill(hanging, signal.SIGSTOP)
    fleet.stop(signal.SIGKILL)
    eventually(lambda: not session_members(other), what="the worker that does not hang leaves by itself")
    assert len(session_members(hanging)) == 2

    again = master(workers={"count": 2, "stop_timeout_seconds": 1.0})

    assert session_members(hanging) == []
    assert {row["restarts"] for row in again.status().values()} == {0}
    assert "2 processes of an earlier master" in again.log.read_text()


@pytest.mark.shows("reloads do not raise threads or descriptors")
def test_reloads_leave_descriptors_and_threads_of_the_master_as_they_were(master: Callable[..., Master]) -> None:
    fleet = master(workers={"count": 1})

    def held() -> tuple[int, int]:
        process = psutil.Process(fleet.process.pid)
        return process.num_fds(), process.num_threads()

    eventually(lambda: len(fleet.ask("offset_checker").result["rows"]) == 4, 30, "the brokers have been asked")
    for _ in range(10):
        fleet.ask("reload")
    before = held()
    for _ in range(50):
        assert fleet.ask("reload").result["state"] == "done"

    eventually(lambda: held()[0] <= before[0] and held()[1] <= before[1] + 4, what="as many as before")
