"""Memory by session: known sessions are read each time, the whole machine only from time to time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kctl.master.memory import SCAN_SECONDS, Memory, shared_bytes
from kctl.master.process import processes, session_members

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PARENT = """
import subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """Leads a session; starts a process that prints `up` for each line that it reads."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        yield process
        process.kill()


def has_child(parent: subprocess.Popen[str]) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "up\n"


def test_what_was_started_since_is_found_by_the_next_scan_of_all(parent: subprocess.Popen[str]) -> None:
    now = [0.0]
    memory = Memory(lambda: now[0])
    has_child(parent)
    with_one = memory.measured([parent.pid])[parent.pid]

    has_child(parent)
    unseen = memory.measured([parent.pid])[parent.pid]
    now[0] += SCAN_SECONDS
    seen = memory.measured([parent.pid])[parent.pid]

    assert with_one > 8 << 20
    assert unseen < with_one + (4 << 20)
    assert seen > with_one + (4 << 20)


def test_a_session_that_is_new_or_gone_is_known_at_once(parent: subprocess.Popen[str]) -> None:
    memory = Memory(lambda: 0.0)
    assert memory.measured([]) == {}
    assert memory.measured([parent.pid]).keys() == {parent.pid}

    parent.kill()
    parent.wait()

    assert memory.measured([parent.pid]) == {}
    assert shared_bytes(2**22 + 1) == 0, "the kernel does not report it of that pid"


FORKING = """
import os, signal, sys
large = bytearray(os.urandom(64 << 20))
for _ in range(4):
    if os.fork() == 0:
        os.write(1, b"up\\n")
        sys.stdin.readline()
        own = bytearray(os.urandom(64 << 20))
        os.write(1, b"own\\n")
        sys.stdin.readline()
signal.pause()  # it must not take the line that is one of the others'
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """Leads a session of five that share 64 MiB; for each line, one of them allocates 64 MiB of its own."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == b"up\n"
        yield process
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)


def test_what_forked_processes_share_is_counted_once_and_their_own_at_once(family: subprocess.Popen[bytes]) -> None:
    alone, memory = 64 << 20, Memory(lambda: 0.0)
    residents = sum(process.resident_pages for process in processes(session_members(family.pid))) * PAGE_BYTES
    assert residents > 5 * alone

    shared = memory.measured([family.pid])[family.pid]
    assert family.stdin is not None
    assert family.stdout is not None
    family.stdin.write(b"\n")
    family.stdin.flush()
    assert family.stdout.readline() == b"own\n"

    assert alone < shared < 2 * alone
    assert memory.measured([family.pid])[family.pid] > shared + 0.9 * alone
