"""One incarnation of a supervised process: spawned into a session of its own, watched, ended with all it has started.

A worker is more than its process: Spark's JVM is a child of it, and Spark's Python daemon puts itself into another
process *group*. The session (`setsid`) is what they all share, so the session is killed and its memory is counted.
Deciding about restarts is `restart`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kctl.children import child_environment
from kctl.master.process_log import ProcessLog
from kctl_agent.paths import remove_files, socket_owner

_KILL_POLL_SECONDS = 0.02
_KILL_DEADLINE_SECONDS = 5.0
_ABORT_SECONDS = 1.0
_MARK = "KCTL_SUPERVISED"


class Child:
    """A running child process. Every method belongs to the event loop that spawned it."""

    def __init__(self, process: asyncio.subprocess.Process, log: ProcessLog) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def spawn(
        cls, command: Sequence[str], settings: Mapping[str, object], log_path: Path, mark: str = ""
    ) -> Child:
        """Starts `command` in a new session; its stdin gets `settings` as one JSON line and then stays open.

        The child watches the open pipe: end of file means that its master is gone, however the master ended. stdout and
        stderr are appended to `log_path`. By `mark`, in its environment, a later master knows it. Raises OSError: the
        command cannot be executed or the log cannot be opened.
        """
        log = ProcessLog(log_path)
        output = await asyncio.to_thread(log.open)
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
        # Not drained: a child that dies before it reads must not hold up its master. Its exit code is enough.
        process.stdin.write(json.dumps(settings, allow_nan=False).encode() + b"\n")
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The pid, which is also the id of its session."""
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the exit code, or minus the signal number; may be cancelled and called again."""
        return await self._process.wait()

    async def stop(self, timeout_seconds: float) -> int:
        """Asks the process to leave (SIGTERM), waits that long, then kills its whole session; returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self.wait()
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """Kills its whole session; returns its exit code."""
        await kill_session(self.pid)
        return await self.wait()

    async def abort(self) -> int:
        """Lets a process that hangs write its stacks into its log (SIGABRT, for which faulthandler stands by in our
        processes), then kills its session; returns its exit code."""
        with contextlib.suppress(OSError), self.log.open() as file:
            file.write(b"kctl ends this process, which does not answer. Where its threads stand:\n")
        for number in (signal.SIGABRT, signal.SIGCONT):  # one that is stopped takes no signal but SIGKILL
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_SECONDS):
                await self.wait()
        return await self.kill()

    def close(self) -> None:
        """Closes the pipe to a process that has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()


async def kill_session(session: int, mark: str | None = None) -> int:
    """Kills what is left of the session and waits until it is gone; returns how many processes had to be killed. With
    a `mark` only those that were spawned with it, and what they have started.

    Repeated until none is found: a process may fork between the search and the kill. Raises TimeoutError: something
    survived SIGKILL for 5 s (a process in uninterruptible I/O).
    """
    killed: set[int] = set()
    async with asyncio.timeout(_KILL_DEADLINE_SECONDS):
        while members := await asyncio.to_thread(_members, session, mark):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(members)
            await asyncio.sleep(_KILL_POLL_SECONDS)
    return len(killed)


def _members(session: int, mark: str | None) -> list[int]:
    return [pid for pid in session_members(session) if mark is None or _has_mark(pid, mark)]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return f"{_MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def session_members(session: int) -> list[int]:
    """Returns the pids of a session's living processes (a zombie is dead). Reads /proc: call it in a thread."""
    return [process.pid for process in processes() if process.session == session and process.state != "Z"]


def remove_socket(path: Path, pid: int) -> None:
    """Removes the socket that a dead process has left, and the record of its owner; never a living process's.

    A killed worker cannot tidy up, and its socket would be taken for that of a worker that hangs.
    """
    owner = socket_owner(path)
    if owner is not None and owner.pid == pid:
        remove_files(path)


class Process(NamedTuple):
    """A process as /proc has it."""

    pid: int
    state: str
    session: int
    resident_pages: int
    stack_start: int
    """Address of its stack: one that was forked and executed nothing has its parent's. 0 of another user's process."""


def processes(pids: Iterable[int] | None = None) -> Iterator[Process]:
    """Yields these processes, or all of the machine, from /proc/PID/stat, fields 1, 3, 6, 24 and 28 of proc(5); those
    that have ended meanwhile are left out. Call it in a thread."""
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
        # Field 2 is the command in parentheses and may itself contain both blanks and parentheses.
        fields = text[text.rindex(b")") + 2 :].split(maxsplit=26)
        yield Process(pid, fields[0].decode("ascii"), int(fields[3]), int(fields[21]), int(fields[25]))
