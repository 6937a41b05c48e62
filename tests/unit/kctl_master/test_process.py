from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from kctl.master.exit_reasons import cause, why
from kctl.master.memory import Memory
from kctl.master.process import Child, kill_session, remove_socket, session_members
from tests.processes import until

FAMILY = """
import os, subprocess, sys
code = "import os, sys, time; os.setpgid(0, 0); print('child', flush=True); time.sleep(600)"
children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
sys.stdin.read()
"""


async def spawn(code: str, log: Path) -> Child:
    return await Child.spawn([sys.executable, "-c", code], {"name": "worker-0"}, log)


@pytest.mark.shows("child processes end with their parent, in other process groups too")
async def test_grandchildren_in_other_process_groups_are_killed_with_the_session(tmp_path: Path) -> None:
    child = await spawn(FAMILY, tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text().count("child") == 2)
    family = session_members(child.pid)
    assert len(family) == 3
    assert Memory().measured([child.pid])[child.pid] > 3 * 1024 * 1024

    os.kill(child.pid, signal.SIGKILL)
    await child.wait()
    killed, survivors = await kill_session(child.pid)

    assert (killed, survivors) == (2, {})
    assert session_members(child.pid) == []
    child.close()


async def test_the_last_lines_are_those_of_this_incarnation_without_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a line of the incarnation before\n")
    silent = await spawn("pass", log)
    await silent.wait()
    assert silent.log.last_lines(3) == []

    loud = await spawn("print('one'); print(); print('\\x1b[31mtwo\\x07' + 'x' * 1000)", log)
    await loud.wait()

    one, two = loud.log.last_lines(3)
    assert one == "one"
    assert two == "[31mtwo" + "x" * 393
    assert len(loud.log.last_lines(1)[0]) == 400
    silent.close()
    loud.close()


def test_only_the_socket_of_the_dead_process_is_removed(tmp_path: Path) -> None:
    path, record = tmp_path / "worker-0.sock", tmp_path / "worker-0.pid"
    remove_socket(path, 7)
    path.touch()
    remove_socket(path, 7)
    assert path.exists()

    record.write_text("nonsense")
    remove_socket(path, 7)
    assert path.exists()

    record.write_text("8 12345\n")
    remove_socket(path, 7)
    assert path.exists()

    remove_socket(path, 8)
    assert not path.exists()
    assert not record.exists()


INFO = "2026-11-22T10:00:00.000Z INFO kctl_agent.worker reads orders-0 from 5"
SENTENCE = "cannot begin to read"
ERROR = f"2026-11-22T10:00:00.000Z ERROR kctl_agent.worker {SENTENCE}"


@pytest.mark.parametrize(
    ("code", "line", "reported"),
    [
        (-9, INFO, "signal 9, SIGKILL"),
        (-9, "ready to work", "signal 9, SIGKILL"),
        (-9, ERROR, f"signal 9, SIGKILL; {SENTENCE}"),
        (-6, "java.lang.OutOfMemoryError: Java heap space", None),
        (-11, None, "signal 11, SIGSEGV; its log is empty"),
        (78, "no such transform: module:function", "no such transform: module:function"),
        (1, ERROR, SENTENCE),
        (1, INFO, "exit code 1"),
        (0, None, "exit code 0; its log is empty"),
        (-200, INFO, "signal 200"),
    ],
)
def test_the_cause_is_a_signal_or_a_line_of_the_log(code: int, line: str | None, reported: str | None) -> None:
    assert why(code, line) == (reported or f"{cause(code)}; {line}")
