"""Which changes were made by which user, as JSON lines: one file per fleet, and one per user for clusters that no fleet
was named for.

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
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.config import Config

__all__ = ["Operation", "append", "fleet_log", "operation", "user_log"]

log = logging.getLogger(__name__)

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_CALLER = os.getuid()
"""Who runs this process: that of root may become the fleet's user later."""


def fleet_log(config: Config) -> Path:
    """Where what is done to a fleet, its group and its storage is written down."""
    return config.fleet.log_dir / "operations.jsonl"


def user_log(env: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/kctl/audit.jsonl`, by default below `~/.local/state`."""
    home = env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return Path(env.get("XDG_STATE_HOME") or Path(home, ".local", "state"), "kctl", "audit.jsonl")


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Write one line, in one piece: several processes append to the same file.

    Raises:
        OSError: it cannot be written, or it is a link, no regular file, or of another user.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = _opened(folder, path.name)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)


def _opened(folder: int, name: str) -> int:
    """The file, as we have made it or as an earlier line has.

    We may be root (`sudo kctl`) in a folder of another user, who could have put a link to any file of the machine
    there: only a file that we make ourselves becomes that user's, and one that is there is used only as what it is.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not hold us up
    owner = os.fstat(folder)
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, _FILE_MODE, dir_fd=folder)
    except FileExistsError:
        descriptor = os.open(name, flags, dir_fd=folder)
        is_new = False
    else:
        is_new = True
    try:
        found = os.fstat(descriptor)
        is_ours = found.st_uid in (owner.st_uid, os.geteuid(), 0)
        if not (stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and is_ours):
            raise PermissionError(errno.EPERM, "it is a link, no regular file, or another user's", name)
        if is_new and os.geteuid() == 0:  # or the fleet's own user would be locked out
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Operation:
    """What is being done; `text` is what came of it, one sentence."""

    def __init__(self) -> None:
        self.text = ""


@contextmanager
def operation(path: Path, name: str, params: Mapping[str, Any]) -> Iterator[Operation]:
    """Writes a line before the change and one after it, so one that was killed half way has left its first line.

    What cannot be written down is logged and done all the same: a full disk must not keep anybody from making room.
    """
    uid = _CALLER
    began = time.time()
    line = {
        "id": f"{os.getpid()}-{int(began * 1000)}",
        "operation": name,
        "params": dict(params),
        "by": _name(uid),
        "uid": uid,
        "login": _login(),
        "via": "cli",
        "state": "running",
        "text": "",
        "started_at": began,
        "ended_at": None,
    }
    _append_or_log(path, line)
    running = Operation()
    state = "failed"
    try:
        yield running
        state = "done"
    except BaseException as error:
        running.text = str(error) or type(error).__name__
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
