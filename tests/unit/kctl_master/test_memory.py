"""Memory by session: what is known is looked at each time, all of the machine only now and then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kctl.master.memory import LOOK_SECONDS, Memory

PARENT = """
import subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """Leads a session; for each line that it reads it starts a process that says `up`."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        yield process
        process.kill()


def has_child(parent: subprocess.Popen[str]) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "up\n"


def test_what_was_started_since_is_found_by_the_next_look_at_all(parent: subprocess.Popen[str]) -> None:
    now = [0.0]
    memory = Memory(lambda: now[0])
    has_child(parent)
    with_one = memory.measured([parent.pid])[parent.pid]

    has_child(parent)
    unseen = memory.measured([parent.pid])[parent.pid]
    now[0] += LOOK_SECONDS
    seen = memory.measured([parent.pid])[parent.pid]

    assert with_one > 8 << 20
    assert unseen < with_one + (4 << 20)
    assert seen > with_one + (4 << 20)


def test_it_is_found_at_once_where_something_is_starting(parent: subprocess.Popen[str]) -> None:
    memory = Memory(lambda: 0.0)
    has_child(parent)
    with_one = memory.measured([parent.pid])[parent.pid]

    has_child(parent)

    assert memory.measured([parent.pid], look_at_all=True)[parent.pid] > with_one + (4 << 20)


def test_a_session_that_is_new_or_gone_is_known_at_once(parent: subprocess.Popen[str]) -> None:
    memory = Memory(lambda: 0.0)
    assert memory.measured([]) == {}
    assert memory.measured([parent.pid]).keys() == {parent.pid}

    parent.kill()
    parent.wait()

    assert memory.measured([parent.pid]) == {}
