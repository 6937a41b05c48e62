"""The audit log: which user made which change, as JSON lines.

The master writes its operations there (`master/operations/operation_log.py`), the command line what it changes without
a master.
Secrets are never part of a line; ASCII only, so a terminal may show it.
"""

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

from kctl.ownership import refuse_others
from kctl.regular_files import open_regular

if TYPE_CHECKING:
    from kctl.config.sections import Config

log = logging.getLogger(__name__)

_FOLDER_MODE = 0o700


def fleet_log(config: Config) -> Path:
    """Returns the path of a fleet's audit log: changes of the fleet, its group and its storage."""
    return config.fleet.log_dir / "operations.jsonl"


def user_log(env: Mapping[str, str]) -> Path:
    """Returns `$XDG_STATE_HOME/kctl/audit.jsonl`, by default below `~/.local/state`. Raises ConfigError: we are root,
    and that is another user's."""
    home = env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    path = Path(env.get("XDG_STATE_HOME") or Path(home, ".local", "state"), "kctl", "audit.jsonl")
    refuse_others(path)
    return path


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Writes one line, in one piece: several processes append to the same file. Half a line that a full disk has taken
    before is ended. Raises OSError: it cannot be written, or it is a link, no regular file, or of another user."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.fstat(descriptor).st_size
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        text = (b"" if is_whole else b"\n") + json.dumps(line).encode() + b"\n"
        if os.write(descriptor, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


class AuditedOperation:
    """A change under way; `text` is its outcome, one sentence, or how far it has come: an error is added to it."""

    def __init__(self) -> None:
        self.text = ""


@contextmanager
def operation(
    path: Path, name: str, params: Mapping[str, Any], *, via: str = "cli", by: str | None = None
) -> Iterator[AuditedOperation]:
    """Writes a line before the change and one after it, so one that was killed half way has left its first line.

    Of one that came over HTTP `by` is the name of its token.

    What cannot be written down is logged and done all the same: a full disk must not keep anybody from making room.
    """
    uid = os.getuid()
    began = time.time()
    line = {
        "id": f"{os.getpid()}-{int(began * 1000)}",
        "operation": name,
        "params": dict(params),
        "by": _name(uid) if by is None else by,
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


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _login() -> str | None:
    """The user of the login, as the kernel reports it, whatever `sudo` and `su` came after; None for a service."""
    try:
        uid = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if uid == 2**32 - 1 else _name(uid)
