"""The whole master against a real broker, with stand-in workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl import fleets
from kctl.config.load import load
from kctl.errors import AlreadyRunning
from kctl.master.process import session_members
from kctl.start.main import run
from tests.conftest import eventually


def test_a_stop_leaves_no_process_no_socket_and_no_entry(master: Callable[..., Any]) -> None:
    fleet = master()
    pids = [row["pid"] for row in fleet.status().values()]

    assert fleet.stop() == 0

    assert [session_members(pid) for pid in pids] == [[], []]
    assert os.listdir(fleet.run_dir) == []
    assert fleets.running() == []
    assert "worker-0 leaves" in (fleet.config.parent / "logs" / "worker-0.log").read_text()


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
