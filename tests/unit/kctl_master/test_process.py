import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.master import process as process_module
from kctl.master.process import (
    KEPT_BYTES,
    Child,
    LogRotation,
    ProcessLog,
    kill_session,
    processes,
    remove_socket,
    rotate,
    session_members,
)
from kctl.master.restart import cause, why
from kctl.master.supervisor import SCAN_SECONDS, Memory, shared_bytes
from kctl.ownership import rotated
from kctl_agent.paths import ProcessIdentity, record_owner
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

    record_owner(path, ProcessIdentity(8, 12345))
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


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PARENT = """
import subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
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
    """Leads a session of five that share 64 MiB. For each line, one of them allocates 64 MiB of its own."""
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


LIMIT = 256 * 1024
WRITER = """
import sys
for n in range(int(sys.argv[2])):
    sys.stdout.write(f"{sys.argv[1]} {n} {'x' * (n % 200)}\\n")
    sys.stdout.flush()
"""
LINES = 20_000


@pytest.fixture
def can_collapse(tmp_path: Path) -> bool:
    path = tmp_path / "trial"
    path.write_bytes(b"x" * 100_000)
    with path.open("r+b") as file:
        return process_module._collapse(file, 65536)


@pytest.mark.shows("logs are rotated while processes write them; no line is lost or doubled")
def test_rotations_lose_and_repeat_no_line(tmp_path: Path, can_collapse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_FLOOD_LIMITS", 1000)  # on a loaded machine this counts as a flood
    if not can_collapse:
        pytest.skip("the file system of the temporary folder cannot remove a file's beginning (ext4 and XFS can)")
    log, written, rotations = tmp_path / "log", b"", 0
    with log.open("ab") as out:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(number), str(LINES)], stdout=out) for number in range(3)
        ]
    while any(writer.poll() is None for writer in writers):
        if rotate(log, 2 * KEPT_BYTES):
            written += rotated(log).read_bytes()
            rotations += 1
    written += log.read_bytes()

    assert rotations > 1
    found: dict[str, list[int]] = defaultdict(list)
    for line in written.decode().splitlines():
        writer, number, filling = (line + " ").split(" ")[:3]
        assert filling == "x" * (int(number) % 200)
        found[writer].append(int(number))
    assert found == {str(number): list(range(LINES)) for number in range(3)}


def test_of_a_flood_the_newest_part_is_kept_as_private_as_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(200_000)))  # 2.3 MB
    log.chmod(0o600)

    rotate(log, LIMIT)

    assert rotated(log).stat().st_mode & 0o777 == 0o600
    assert rotated(log).stat().st_size <= 4 * LIMIT + KEPT_BYTES + 4096 < 2_000_000
    assert (rotated(log).read_bytes() + log.read_bytes()).endswith(b"line 199998\nline 199999\n")


def test_a_log_that_cannot_be_rotated_is_reported_once_and_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "LOG_LIMIT_BYTES", LIMIT)
    caplog.set_level(logging.INFO)
    path = tmp_path / "log"
    path.write_bytes(b"line\n" * 100_000)
    rotated(path).mkdir()
    rotation = LogRotation()

    rotation([ProcessLog(path)])
    rotation([ProcessLog(path)])
    refused = [record.getMessage() for record in caplog.records]
    whole = path.stat().st_size
    rotated(path).rmdir()
    rotation([ProcessLog(path), ProcessLog(tmp_path / "nothing")])

    assert refused == [f"action=log_not_rotated log={tmp_path / 'log'}: Is a directory"]
    assert whole == 500_000
    assert rotated(path).read_bytes() + path.read_bytes() == b"line\n" * 100_000
    assert caplog.records[-1].getMessage().startswith("action=log_rotated log=log bytes=")


OWN = "import sys; from pathlib import Path; from kctl.master.process import is_own_output\n"


@pytest.mark.parametrize(("mode", "expected"), [("ab", "True"), ("wb", "False")])
def test_the_masters_own_log_is_what_its_output_is_appended_to(mode: str, expected: str, tmp_path: Path) -> None:
    """A rotation would tear a log that is written from its start, as `>` of a shell does."""
    path = tmp_path / "master.log"
    with path.open(mode) as out:
        code = OWN + "print(is_own_output(Path(sys.argv[1])))"
        subprocess.run([sys.executable, "-c", code, str(path)], stdout=out, stderr=subprocess.DEVNULL, check=True)

    assert path.read_text() == f"{expected}\n"
    assert not process_module.is_own_output(tmp_path / "nothing")
    assert not process_module.is_own_output(path)


@pytest.mark.shows("no log is read, written or shortened through a link or a pipe")
def test_a_link_or_a_pipe_in_place_of_a_log_is_not_read_written_or_shortened(tmp_path: Path) -> None:
    target = tmp_path / "somebodys"
    target.write_bytes(b"secret\n" * LIMIT)
    kept = target.read_bytes()
    link, pipe = ProcessLog(tmp_path / "link.log"), ProcessLog(tmp_path / "pipe.log")
    link.path.symlink_to(target)
    os.mkfifo(pipe.path)

    with contextlib.suppress(OSError):
        rotate(link.path, 0)
    with pytest.raises(OSError, match="not a regular file"):
        rotate(pipe.path, -1)
    with pytest.raises(OSError):
        link.open()

    assert link.last_lines(5) == []
    assert pipe.last_lines(5) == []
    assert target.read_bytes() == kept
    assert not rotated(link.path).exists()
