"""`kctl logs`: prints the end of a process's log, and follows it.

The master moves the older part of a large log to NAME.log.1. `kctl logs` reads both files as one stream of bytes.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import BinaryIO

from kctl.cli.command import CONFIG, Command, Option
from kctl.cli.fleet.ask import ask
from kctl.errors import KctlError, NoMaster, UsageError
from kctl.fields import host_and_name
from kctl.fleets import Fleet, find
from kctl.ownership import open_regular, rotated
from kctl.rows.workers import Statuses
from kctl.rpc.decode import answered
from kctl_agent.errors import AgentError

_POLL_SECONDS = 0.2
_MASTER = "master"


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    paths = _paths(_known(find(options.config, env), env), options.name or [])
    widest = max(map(len, paths)) if len(paths) > 1 else 0
    outputs = [(_Lines(f"{name:<{widest}} | " if widest else ""), path) for name, path in paths.items()]
    ends = [_show(out, path, options.limit) for out, path in outputs]
    if options.follow:
        _follow([(out, path, end) for (out, path), end in zip(outputs, ends, strict=True)])


def _paths(logs: dict[str, Path], names: list[str]) -> dict[str, Path]:
    if not logs:
        raise UsageError("there are no logs: no process of this fleet has started yet")
    for name in names:
        host, own = host_and_name(name)
        if host:
            raise UsageError(f"the log of a process is only on its own host: run `kctl logs {own}` on {host}")
        if name == _MASTER and name not in logs:
            raise UsageError(
                "the master has no log file: it logs to its terminal or journal, and to a file only with `kctl start "
                "--daemon`"
            )
        if name not in logs:
            raise UsageError(f"there is no log of {name}, only of {', '.join(sorted(logs))}")
    return {name: logs[name] for name in names or sorted(logs)}


def _known(fleet: Fleet, env: Mapping[str, str]) -> dict[str, Path]:
    try:
        reply = ask(fleet, "status", {"local": True}, 5.0, of_master=True)
        logs = {each.name: Path(each.log) for each in answered("status", Statuses, reply.raw).rows}
    except (NoMaster, AgentError):
        logs = {}
    folders = {path.parent for path in logs.values()}
    if not logs:
        from kctl.config.load import load

        folders = {load(fleet.config, env).fleet.log_dir}
        logs = {path.stem: path for folder in folders for path in folder.glob("*.log")}
    for folder in folders:
        if (folder / "master.log").exists():
            logs[_MASTER] = folder / "master.log"
    return logs


class _Lines:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._rest = b""

    def write(self, data: bytes) -> None:
        if not self._prefix:
            sys.stdout.write(data.decode("utf-8", "replace"))
        else:
            # Only whole lines, so that lines of several logs do not mix.
            *whole, self._rest = (self._rest + data).split(b"\n")
            sys.stdout.writelines(f"{self._prefix}{line.decode('utf-8', 'replace')}\n" for line in whole)
        sys.stdout.flush()

    def end(self) -> None:
        if self._rest:
            self.write(b"\n")


def _show(out: _Lines, path: Path, lines: int) -> int:
    with _readable(path):
        data, end = tail(path, lines)
    out.write(data)
    out.end()
    return end


def _follow(logs: Sequence[tuple[_Lines, Path, int]]) -> None:
    followers = []
    for out, path, end in logs:
        with _readable(path):
            followers.append((out, path, Follower(path, end)))
    pause = Event()
    while True:
        has_news = False
        for out, path, follower in followers:
            with _readable(path):
                data = follower.read()
            if data:
                out.write(data)
                has_news = True
        if not has_news:
            pause.wait(_POLL_SECONDS)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KctlError(f"the log {path} cannot be read: {error.strerror}") from None


COMMAND = Command(
    "logs",
    "Show logs of workers, sinkers, the engine and the master of this host.",
    (
        Option(("NAME",), "workers, sinkers, `engine` or `master`; by default every process with a log", "words"),
        CONFIG,
        Option(("--follow", "-f"), "print new lines until Ctrl-C", "flag"),
        Option(("--limit", "-n"), "how many lines from the end of each log", "int", "N", 50),
    ),
    "kctl logs worker-0 -f\nkctl logs worker-0 worker-1 master -n 20",
    "The fleet need not run. With several logs, each line begins with the name of its process. A log above 16 MiB "
    "moves to NAME.log.1; this command shows both files. The master has a log file only with `kctl start --daemon`.",
    run=_run,
)


_CHUNK_BYTES = 64 * 1024


def _open(path: Path) -> BinaryIO:
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def tail(path: Path, lines: int) -> tuple[bytes, int]:
    """Returns the last `lines` of a log, and the position of its end. Raises OSError."""
    with _open(path) as log:
        end = log.seek(0, os.SEEK_END)
    if lines == 0:
        return b"", end
    data = _from_end(path, end, lines)
    if data.count(b"\n", 0, -1) < lines and rotated(path).exists():
        data = _from_end(rotated(path), rotated(path).stat().st_size, lines) + data
    return b"".join(data.splitlines(keepends=True)[-lines:]), end


def _from_end(path: Path, end: int, lines: int) -> bytes:
    parts: list[bytes] = []
    found = 0
    with _open(path) as log:
        while end > 0 and found <= lines:
            begin = max(0, end - _CHUNK_BYTES)
            log.seek(begin)
            parts.append(log.read(end - begin))
            found += parts[-1].count(b"\n")
            end = begin
    return b"".join(reversed(parts))


class Follower:
    """Reads the bytes that are appended to a log after a position, across rotations."""

    def __init__(self, path: Path, position: int, settled_seconds: float = 1.0) -> None:
        """A rotation counts as over when NAME.log.1 has not changed for `settled_seconds`."""
        self._path = path
        self._file = _open(path)
        self._position = position
        self._settled_seconds = settled_seconds
        self._older = self._inode_of_older()

    def read(self) -> bytes:
        """Returns up to 64 KiB of new bytes. After a rotation, prepends all unread bytes of NAME.log.1. Returns b""
        during a rotation, or if the log has not grown."""
        unread = b""
        if self._inode_of_older() != self._older:
            if not self._is_settled():
                return b""
            if not self._is_replaced():
                unread = self._take_up_rotation()
        elif os.fstat(self._file.fileno()).st_size < self._position:  # truncated
            self._position = 0
        self._file.seek(self._position)
        data = self._file.read(_CHUNK_BYTES)
        self._position += len(data)
        if not data and not unread and self._is_replaced():
            self._file.close()
            self._file, self._position, self._older = _open(self._path), 0, self._inode_of_older()
        return unread + data

    def close(self) -> None:
        self._file.close()

    def _take_up_rotation(self) -> bytes:
        self._older = self._inode_of_older()
        with _open(rotated(self._path)) as moved:
            size = moved.seek(0, os.SEEK_END)
            moved.seek(min(self._position, size))
            unread = moved.read()
        self._position = max(0, self._position - size)
        if self._position > os.fstat(self._file.fileno()).st_size:  # part of a flood was dropped
            self._position = 0
        return unread

    def _is_settled(self) -> bool:
        state = os.stat(rotated(self._path))
        return time.time() - max(state.st_mtime, state.st_ctime) >= self._settled_seconds

    def _inode_of_older(self) -> int | None:
        try:
            return os.stat(rotated(self._path)).st_ino
        except FileNotFoundError:
            return None

    def _is_replaced(self) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            return False
