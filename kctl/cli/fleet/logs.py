"""`kctl logs`"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Annotated

from kctl.cli.command import argument, option
from kctl.cli.fleet.ask import ask
from kctl.cli.fleet.log_files import Follower, tail
from kctl.cli.options import ConfigOption
from kctl.cli.signature import command
from kctl.errors import KctlError, NoMaster, UsageError
from kctl.fields import host_and_name
from kctl.fleets import Fleet, find
from kctl.rows.workers import Statuses
from kctl.rpc.decode import answered
from kctl_agent.errors import AgentError

_POLL_SECONDS = 0.2
_MASTER = "master"


def _logs(
    names: Annotated[
        list[str] | None,
        argument("NAME", help="Workers, sinkers, `engine`, `master`; by default all that have a log."),
    ] = None,
    config: ConfigOption = None,
    follow: Annotated[bool, option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[int, option("--limit", "-n", least=0, metavar="N", help="How many last lines of each log.")] = 50,
) -> None:
    """Show logs of workers, sinkers, the engine and the master of this host.

    The fleet need not run. With several logs, each line begins with the name of its process. A log above 16 MiB moves
    to NAME.log.1, which is shown too. The master has a log file with `kctl start --daemon`.

    kctl logs worker-0 -f
    kctl logs worker-0 worker-1 master -n 20
    """
    fleet = find(config, os.environ)
    paths = _paths(fleet, names or [])
    widest = max(map(len, paths)) if len(paths) > 1 else 0
    outputs = [(_Lines(f"{name:<{widest}} | " if widest else ""), path) for name, path in paths.items()]
    ends = [_show(out, path, lines) for out, path in outputs]
    if follow:
        _follow([(out, path, end) for (out, path), end in zip(outputs, ends, strict=True)])


def _paths(fleet: Fleet, names: list[str]) -> dict[str, Path]:
    logs = _known(fleet)
    if not logs:
        raise UsageError("there are no logs: no process of this fleet has started yet")
    for name in names:
        host, own = host_and_name(name)
        if host:
            raise UsageError(f"only the host of a process has its log: run `kctl logs {own}` on {host}")
        if name == _MASTER and name not in logs:
            raise UsageError(
                "there is no log file of the master: it logs to its terminal or journal, and to a file only with "
                "`kctl start --daemon`"
            )
        if name not in logs:
            raise UsageError(f"there is no log of {name}, only of {', '.join(sorted(logs))}")
    return {name: logs[name] for name in names or sorted(logs)}


def _known(fleet: Fleet) -> dict[str, Path]:
    """The logs that the supervisor names, or else those in the configured folder."""
    try:
        reply = ask(fleet, "status", {"local": True}, 5.0, of_master=True)
        logs = {each.name: Path(each.log) for each in answered("status", Statuses, reply.raw).rows}
    except (NoMaster, AgentError):
        logs = {}
    folders = {path.parent for path in logs.values()}
    if not logs:
        from kctl.config.load import load

        folders = {load(fleet.config, os.environ).fleet.log_dir}
        logs = {path.stem: path for folder in folders for path in folder.glob("*.log")}
    for folder in folders:
        if (folder / "master.log").exists():
            logs[_MASTER] = folder / "master.log"
    return logs


class _Lines:
    """Writes bytes to stdout; with a prefix line by line, so that lines of several logs do not mix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._rest = b""

    def write(self, data: bytes) -> None:
        if not self._prefix:
            sys.stdout.write(data.decode("utf-8", "replace"))
        else:
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


COMMAND = command("logs", _logs)
