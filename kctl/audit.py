"""The audit log: JSON lines that record which user made which change, through the master or the command line. The lines
contain no secrets. They are ASCII, so they are safe to print on a terminal."""

from __future__ import annotations

import errno
import json
import logging
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl.ownership import open_regular, refuse_others, user_name

if TYPE_CHECKING:
    from kctl.config.sections import Config

log = logging.getLogger(__name__)


def fleet_log(config: Config) -> Path:
    return config.fleet.log_dir / "operations.jsonl"


def user_log(env: Mapping[str, str]) -> Path:
    """Returns `$XDG_STATE_HOME/kctl/audit.jsonl`, by default below `~/.local/state`. As root, raises ConfigError if
    another user owns or can change the file or its folders."""
    home = env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    path = Path(env.get("XDG_STATE_HOME") or Path(home, ".local", "state"), "kctl", "audit.jsonl")
    refuse_others(path)
    return path


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Appends a line. Processes may append in parallel. Raises OSError, also for a link or another user's file."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        # A full disk may have cut off the last line.
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        text = (b"" if is_whole else b"\n") + json.dumps(line).encode() + b"\n"
        if os.write(descriptor, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


class AuditedOperation:
    """A change in progress. Set `text` to its progress or outcome. An error of the change is appended to `text`."""

    def __init__(self) -> None:
        self.text = ""


@contextmanager
def operation(
    path: Path, name: str, params: Mapping[str, Any], *, via: str = "cli", by: str | None = None
) -> Iterator[AuditedOperation]:
    """Writes a line before the change in the `with` block, and one after it. If the process is killed, only the first
    exists. `by` is an HTTP token's name; the default is this process's user. A write error does not stop the change."""
    uid = os.getuid()
    began = time.time()
    line = {
        "id": f"{os.getpid()}-{int(began * 1000)}",
        "operation": name,
        "params": dict(params),
        "by": user_name(uid) if by is None else by,
        "uid": uid if by is None else None,
        "login": _login() if by is None else None,
        "via": via,
        "state": "running",
        "text": "",
        "started_at": began,
        "ended_at": None,
    }
    _append_or_log(path, line)
    running = AuditedOperation()
    state = "failed"
    try:
        yield running
        state = "done"
    except BaseException as error:
        running.text = "; ".join(filter(None, (running.text, str(error) or type(error).__name__)))
        raise
    finally:
        _append_or_log(path, {**line, "state": state, "text": running.text, "ended_at": time.time()})


def _append_or_log(path: Path, line: Mapping[str, Any]) -> None:
    try:
        append(path, line)
    except OSError as error:
        log.warning("action=audit_failed path=%s operation=%s: %s", path, line["operation"], error.strerror)


def _login() -> str | None:
    try:  # the user who logged in, even after `sudo` or `su`; a service has none
        uid = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if uid == 2**32 - 1 else user_name(uid)
