"""One incarnation of a supervised process: started in its own session, watched, and ended with all that it has started.

Spark's Python daemon has its own process *group*, but all share the session (`setsid`), so kctl kills the session and
counts its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kctl.children import child_environment
from kctl.daemon_threads import on_disk
from kctl.master.process_log import ProcessLog
from kctl_agent.paths import remove_files, socket_owner

_KILL_POLL_SECONDS = 0.02
KILL_SECONDS = 5.0
"""A process that still runs this long after SIGKILL counts as unkillable."""
_MARK = "KCTL_SUPERVISED"


class Child:
    def __init__(self, process: asyncio.subprocess.Process, log: ProcessLog) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def spawn(
        cls, command: Sequence[str], settings: Mapping[str, object], log_path: Path, mark: str = ""
    ) -> Child:
        """Starts `command` in a new session. stdin gets `settings` as a JSON line and stays open; its end shows the
        child that the master is gone. A later master knows the child by `mark` in its environment. Raises OSError."""
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
        """Also the id of its session."""
        return self._process.pid

    async def wait(self) -> int:
        """Returns the exit code, or minus the signal; may be cancelled and repeated."""
        return await self._process.wait()

    async def stop(self, timeout_seconds: float, *signals: signal.Signals) -> bool:
        """Sends `signals`, by default SIGTERM; returns whether the process ended in time."""
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
    """Kills what is left of a session, with `mark` only processes started with this mark and their children, and waits
    up to `seconds`. Returns how many were killed, and surviving pids with the reason. Repeats until it finds none,
    because a process may fork between search and kill."""
    killed: set[int] = set()
    deadline = time.monotonic() + seconds
    while members := await asyncio.to_thread(_members, session, mark, frozenset(killed)):
        survivors = {each.pid: _kill(each) for each in members}
        if time.monotonic() >= deadline:
            return len(killed - survivors.keys()), survivors
        killed.update(survivors)
        await asyncio.sleep(_KILL_POLL_SECONDS)
    return len(killed), {}


def _kill(process: Process) -> str:
    """Returns the reason to report if the process survives."""
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return "it belongs to another user, who has to end it"
    return "it waits in the kernel, for instance for a disk or a network mount that hangs"


def _members(session: int, mark: str | None = None, known: Collection[int] = ()) -> list[Process]:
    """`known` pids have had the mark before, because an ending process shows no environment any more."""
    found = [each for each in processes() if each.session == session and not each.is_dead]
    if mark is None:
        return found
    marks = {each.pid: _has_mark(each.pid, mark) for each in found}
    # A `sudo` child cannot be read. It is ours unless the session's leader is not.
    marks = {pid: marks.get(session, True) if has_it is None else has_it for pid, has_it in marks.items()}
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
    """Reads /proc, so call it in a thread."""
    return [process.pid for process in _members(session)]


def remove_socket(path: Path, pid: int) -> None:
    """Acts only if the process is dead; otherwise a killed worker would look like a hung one."""
    owner = socket_owner(path)
    if owner is not None and owner.pid == pid:
        remove_files(path)


def record_session(path: Path, pid: int) -> None:
    """Records survivors for `kctl stop` and the next master."""
    if socket_owner(path) is None:
        path.with_suffix(".pid").write_text(f"{pid} 0\n")


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
        """False while another thread is in the kernel, although the main thread of a killed process is a zombie by
        then."""
        return self.state == "Z" and self.threads == 1


def processes(pids: Iterable[int] | None = None) -> Iterator[Process]:
    """Yields these processes, or all, without ended ones, from /proc/PID/stat (fields 1, 3, 6, 20, 24 and 28 of
    proc(5)). Call it in a thread."""
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
        # Field 2 is the command in parentheses, which may itself contain blanks and parentheses.
        fields = text[text.rindex(b")") + 2 :].split(maxsplit=26)
        yield Process(pid, fields[0].decode("ascii"), int(fields[3]), int(fields[21]), int(fields[25]), int(fields[17]))
