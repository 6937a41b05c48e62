"""Starts and kills a supervised process, and limits the size of its log.

Each started process has its own session. kctl kills and measures sessions instead of process groups, because Spark's
Python daemon leaves its process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kctl.children import child_environment
from kctl.daemon_threads import on_disk
from kctl.ownership import open_regular, rotated
from kctl_agent.paths import ProcessIdentity, record_owner, remove_files, socket_owner

log = logging.getLogger(__name__)

LOG_LIMIT_BYTES = 16 * 1024 * 1024
"""Above this size, all of a log but its end moves to NAME.log.1, whose old content is lost."""
_FLOOD_LIMITS = 4
"""The maximum size of NAME.log.1 is this many limits. If a log grows faster than that, its oldest part is dropped."""
KEPT_BYTES = 64 * 1024  # a rotation leaves this much in the log
_COPY_BYTES = 1024 * 1024
_TAIL_BYTES = 8 * 1024
_COLLAPSE_RANGE = 0x08
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessLog:
    """The log of one process, whose size kctl limits. Any thread may use it.

    The process, its JVM and its executors write to the file directly, because they may outlive the master. On ext4 and
    XFS, kctl copies old lines to NAME.log.1 and removes only these lines from the file. Elsewhere, kctl copies all
    lines and empties the file, like `logrotate` with `copytruncate`. Lines written in between are lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._start = 0

    def open(self) -> BinaryIO:
        """Opens the log for appending. If it is too large, first renames it to NAME.log.1. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_size > LOG_LIMIT_BYTES:
                self.path.replace(rotated(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)
        self._start = file.seek(0, os.SEEK_END)
        return file

    def rotate(self) -> int:
        with self._lock:
            removed = rotate(self.path, LOG_LIMIT_BYTES)
            self._start = max(0, self._start - removed)
            return removed

    def last_lines(self, count: int) -> list[str]:
        """Returns the last lines written since `open`, without empty lines and control characters."""
        try:
            with self._lock, open(open_regular(self.path, os.O_RDONLY), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start, size - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return []
        lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
        return [line[:400] for line in lines if line][-count:]


class LogRotation:
    """Rotates logs that are too large whenever it is called. If a log cannot be rotated, warns only once."""

    def __init__(self) -> None:
        self._failing: set[Path] = set()

    def __call__(self, logs: Iterable[ProcessLog]) -> None:
        for each in logs:
            try:
                removed = each.rotate()
            except OSError as error:
                if each.path not in self._failing:
                    log.warning("action=log_not_rotated log=%s: %s", each.path, error.strerror)
                self._failing.add(each.path)
                continue
            self._failing.discard(each.path)
            if removed:
                log.info("action=log_rotated log=%s bytes=%d", each.path.name, removed)


def rotate(path: Path, limit_bytes: int) -> int:
    """Moves old lines of a log above `limit_bytes` to NAME.log.1 while processes append. Returns the number of bytes
    removed. A line may be split between the two files. If this raises OSError, the log is unchanged."""
    try:
        if os.lstat(path).st_size <= limit_bytes:
            return 0
        file = os.fdopen(open_regular(path, os.O_RDWR), "r+b", buffering=0)
    except FileNotFoundError:
        return 0
    with file:
        block = os.fstatvfs(file.fileno()).f_bsize
        end = max(0, os.fstat(file.fileno()).st_size - KEPT_BYTES) // block * block
        copy = path.with_name(path.name + ".1.new")
        try:
            os.fdatasync(file.fileno())  # otherwise the collapse does it, while all writers wait
            _copy(file, copy, max(0, end - _FLOOD_LIMITS * limit_bytes), end)
            copy.replace(rotated(path))
        finally:
            copy.unlink(missing_ok=True)
        if _collapse(file, end):
            return end
        return _truncate(file, rotated(path), end)


def is_own_output(path: Path) -> bool:
    try:
        own = os.stat(path)
    except OSError:
        return False
    return any(os.path.samestat(own, os.fstat(n)) and fcntl.fcntl(n, fcntl.F_GETFL) & os.O_APPEND for n in (1, 2))


def _copy(file: BinaryIO, target: Path, begin: int, end: int) -> None:
    mode = os.fstat(file.fileno()).st_mode & 0o777
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as out:
        while begin < end and (data := os.pread(file.fileno(), min(_COPY_BYTES, end - begin), begin)):
            out.write(data)
            begin += len(data)


def _collapse(file: BinaryIO, size: int) -> bool:
    # Removes the first bytes of the file. tmpfs, overlays over it, and NFS do not support this.
    failed = _LIBC.fallocate(file.fileno(), _COLLAPSE_RANGE, ctypes.c_int64(0), ctypes.c_int64(size))
    return not failed


def _truncate(file: BinaryIO, older: Path, begin: int) -> int:
    with open(open_regular(older, os.O_WRONLY | os.O_APPEND), "ab") as out:
        while data := os.pread(file.fileno(), _COPY_BYTES, begin):
            out.write(data)
            begin += len(data)
        out.flush()
        os.ftruncate(file.fileno(), 0)
    return begin


KILL_SECONDS = 5.0  # a process that still runs this long after SIGKILL counts as unkillable
_MARK = "KCTL_SUPERVISED"


class Child:
    def __init__(self, process: asyncio.subprocess.Process, log: ProcessLog) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def spawn(
        cls, command: Sequence[str], settings: Mapping[str, object], log_path: Path, mark: str = ""
    ) -> Child:
        """Starts `command` in a new session. Writes `settings` to its stdin as a JSON line, and keeps stdin open. When
        the master ends, the child reads end of file. A later master recognises the child by `mark` in the child's
        environment. Raises OSError."""
        log = ProcessLog(log_path)
        output = await on_disk(log.open)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={**child_environment(), _MARK: mark},
            )
        finally:
            output.close()
        assert process.stdin is not None
        # Not drained, because a child that dies before it reads must not delay its master. Its exit code is enough.
        process.stdin.write(json.dumps(settings, allow_nan=False).encode() + b"\n")
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session."""
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the process to end. Returns the exit code or the negative signal number. Can be called again."""
        return await self._process.wait()

    async def stop(self, timeout_seconds: float, *signals: signal.Signals) -> bool:
        """Sends `signals`, by default SIGTERM. Returns whether the process ended within `timeout_seconds`."""
        for number in signals or (signal.SIGTERM,):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


async def kill_session(
    session: int, mark: str | None = None, seconds: float = KILL_SECONDS
) -> tuple[int, Mapping[int, str]]:
    """Kills the processes of a session. With `mark`, kills only processes started with it, and their children. Waits up
    to `seconds` until all have ended. Returns the number of killed processes, and pid -> reason for each survivor."""
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while members := await asyncio.to_thread(_members, session, mark, frozenset(killed)):
        survivors = {each.pid: _kill(each) for each in members}
        if time.monotonic() >= deadline:
            return len(killed - survivors.keys()), survivors
        killed.update(survivors)
        await asyncio.sleep(0.02)
    return len(killed), {}


def _kill(process: Process) -> str:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return "it belongs to another user, who has to end it"
    return "it waits in the kernel, for instance for a disk or a network mount that hangs"


def _members(session: int, mark: str | None = None, known: Collection[int] = ()) -> list[Process]:
    found = [each for each in processes() if each.session == session and not each.is_dead]
    if mark is None:
        return found
    marks = {each.pid: _has_mark(each.pid, mark) for each in found}
    # A `sudo` child cannot be read. It is ours unless the session's leader is not.
    marks = {pid: marks.get(session, True) if has_it is None else has_it for pid, has_it in marks.items()}
    # An ending process hides its environment. `known` has the pids that had the mark before.
    return [each for each in found if marks[each.pid] or each.pid in known]


def _has_mark(pid: int, mark: str) -> bool | None:
    # The main thread of a killed process may have ended while another one is still in the kernel.
    for environment in Path(f"/proc/{pid}/task").glob("*/environ"):
        try:
            return f"{_MARK}={mark}".encode() in environment.read_bytes().split(b"\0")
        except PermissionError:
            return None
        except OSError:
            continue
    return False


def session_members(session: int) -> list[int]:
    """Returns the pids of a session. Reads /proc, so call it in a thread."""
    return [process.pid for process in _members(session)]


def remove_socket(path: Path, pid: int) -> None:
    """Removes a socket and its pid file if the ended process `pid` owns the socket. If the socket remained, a killed
    worker would look like a hung one."""
    owner = socket_owner(path)
    if owner is not None and owner.pid == pid:
        remove_files(path)


def record_session(path: Path, pid: int) -> None:
    """Writes the id of a session whose processes survive SIGKILL to the pid file of socket `path`, unless that file
    exists. `kctl stop` and the next master find the processes by this file."""
    if socket_owner(path) is None:
        record_owner(path, ProcessIdentity(pid, 0))


class Process(NamedTuple):
    pid: int
    state: str
    session: int
    resident_pages: int
    stack_start: int
    """A fork shares the address of its stack with its parent; 0 for another user's process."""
    threads: int

    @property
    def is_dead(self) -> bool:
        """Whether all threads have ended. Other threads of a zombie may still be in the kernel."""
        return self.state == "Z" and self.threads == 1


def processes(pids: Iterable[int] | None = None) -> Iterator[Process]:
    """Yields the processes `pids`, by default all, including zombies. Skips pids that no longer exist. Reads
    /proc/PID/stat, so call it in a thread."""
    for pid in pids if pids is not None else map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            text = os.read(descriptor, 4096)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        # Fields 1, 3, 6, 20, 24 and 28 of proc(5). Field 2 is in parentheses, and may contain blanks and parentheses.
        fields = text[text.rindex(b")") + 2 :].split(maxsplit=26)
        yield Process(pid, fields[0].decode("ascii"), int(fields[3]), int(fields[21]), int(fields[25]), int(fields[17]))
