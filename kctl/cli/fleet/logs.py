"""`kctl logs`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from kctl.cli.command import CONFIG, Command, Option
from kctl.cli.fleet.ask import ask
from kctl.cli.fleet.log_files import Follower, tail
from kctl.errors import KctlError, NoMaster, UsageError
from kctl.fields import host_and_name
from kctl.fleets import Fleet, find
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
            raise UsageError(f"only the host of a process has its log: run `kctl logs {own}` on {host}")
        if name == _MASTER and name not in logs:
            raise UsageError(
                "there is no log file of the master: it logs to its terminal or journal, and to a file only with "
                "`kctl start --daemon`"
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


COMMAND = Command(
    "logs",
    "Show logs of workers, sinkers, the engine and the master of this host.",
    (
        Option(("NAME",), "workers, sinkers, `engine`, `master`; by default all that have a log", "words"),
        CONFIG,
        Option(("--follow", "-f"), "print new lines until Ctrl-C", "flag"),
        Option(("--limit", "-n"), "how many last lines of each log", "int", "N", 50),
    ),
    "kctl logs worker-0 -f\nkctl logs worker-0 worker-1 master -n 20",
    "The fleet need not run. With several logs, each line begins with the name of its process. A log above 16 MiB "
    "moves to NAME.log.1, which is shown too. The master has a log file with `kctl start --daemon`.",
    run=_run,
)
