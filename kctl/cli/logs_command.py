"""`kctl logs`"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from kctl.cli.ask import ask
from kctl.cli.options import ConfigOption, config_option
from kctl.errors import KctlError, NoMaster, UsageError
from kctl.fleets import Fleet, find
from kctl_agent.errors import AgentError
from kctl_agent.messages import wire_method

__all__ = ["register"]

_LOOK_SECONDS = 0.2
_CHUNK_BYTES = 64 * 1024


def register(app: typer.Typer) -> None:
    app.command("logs")(_logs)


def _logs(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker or sinker.")],
    config: ConfigOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option(min=0, metavar="N", help="How many of the last lines.")] = 50,
) -> None:
    """Show the log of a worker or sinker, whether the fleet runs or not.

    \b
    kctl logs worker-0 -f
    kctl logs sinker-1 --lines 500
    """
    path = _path(find(config_option(context, config), os.environ), name)
    end = _tail(path, lines)
    if follow:
        _follow(path, end)


def _path(fleet: Fleet, name: str) -> Path:
    """Its log as its supervisor tells it, else where the configuration says that logs are."""
    logs: dict[str, str] = {}
    try:
        rows = ask(fleet, "status", wire_method("status"), {}, 5.0).result["rows"]
        logs = {row["name"]: row["log"] for row in rows}
    except (NoMaster, AgentError):
        from kctl.config import load

        folder = load(fleet.config, os.environ).fleet.log_dir
        logs = {path.stem: str(path) for path in folder.glob("*.log")}
    if name not in logs:
        raise UsageError(f"there is no log of {name}; there are those of {', '.join(sorted(logs)) or 'nobody'}")
    return Path(logs[name])


def _tail(path: Path, lines: int) -> int:
    """Prints the last lines, also those that were moved to NAME.log.1; returns where the log ended."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            kept = _last_lines(path, end, lines)
    except OSError as error:
        raise KctlError(f"the log {path} cannot be read: {error.strerror}") from None
    before = path.with_name(path.name + ".1")
    if len(kept) < lines and before.exists():
        kept = [*_last_lines(before, before.stat().st_size, lines - len(kept)), *kept]
    _write(b"".join(kept))
    return end


def _last_lines(path: Path, end: int, lines: int) -> list[bytes]:
    """Read from the end, in chunks: a log may be large."""
    data = b""
    with path.open("rb") as log:
        while end > 0 and data.count(b"\n") <= lines:
            begin = max(0, end - _CHUNK_BYTES)
            log.seek(begin)
            data = log.read(end - begin) + data
            end = begin
    found = data.splitlines(keepends=True)
    return found[-lines:] if lines else []


def _follow(path: Path, position: int) -> None:
    """As `tail -F`: a log that was moved aside is read to its end, then the new one from its beginning."""
    pause = Event()
    log = path.open("rb")
    log.seek(position)
    while True:
        data = log.read(_CHUNK_BYTES)
        if data:
            _write(data)
            continue
        try:
            is_moved = os.stat(path).st_ino != os.fstat(log.fileno()).st_ino
        except FileNotFoundError:
            is_moved = False
        if is_moved:
            log.close()
            log = path.open("rb")
        else:
            pause.wait(_LOOK_SECONDS)


def _write(data: bytes) -> None:
    sys.stdout.write(data.decode("utf-8", "replace"))
    sys.stdout.flush()
