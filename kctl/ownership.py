"""Checks of owners: root acts for nobody else, so what another user owns or can change is refused to `sudo kctl`.

With a configuration kctl imports code, sends files as passwords, writes logs and signals processes. So root takes one
only that nobody else could have put there: no folder and no link on the way to it is another user's either.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from kctl.errors import ConfigError, RunDirUnusable

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAX_LINKS = 40
"""Most links of one path, as Linux follows them (path_resolution(7))."""


def refuse_others(path: Path, descriptor: int | None = None) -> None:
    """Refuses root what others own or can change. What is not there is judged by the folders on the way; an open file
    by itself. Raises ConfigError: another user owns it or the way to it, or can write there."""
    if os.geteuid() != 0:
        return
    try:
        for step in _steps(path.absolute()):
            status = step.lstat()
            is_open = stat.S_ISDIR(status.st_mode) and not status.st_mode & stat.S_ISVTX
            _judge(step, status, _others(status) if is_open else 0)  # in one such as /tmp nobody can move what is ours
        status = os.stat(path if descriptor is None else descriptor)
        _judge(path, status, _others(status))
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise ConfigError(f"{path} cannot be used: {error.strerror}") from None


def check_mode(setting: str, path: Path, mode: int) -> None:
    """Refuses what all users can write to. Raises RunDirUnusable: all users can write to what `setting` names."""
    if others_can_write(path, mode & stat.S_IWOTH):
        own = f"name a folder of the fleet's own in {setting}"
        advice = own if mode & stat.S_ISVTX else f"chmod o-w {path}, or correct {setting}"
        raise RunDirUnusable(f"{path} has mode {mode:04o}, all users can write to it: {advice}")


def others_can_write(path: Path, bits: int) -> bool:
    """Whether others can write, by these bits of its mode. Nobody can where Kubernetes mounts a ConfigMap: 0777,
    read-only."""
    return bits != 0 and not os.statvfs(path).f_flag & os.ST_RDONLY


def _steps(path: Path) -> Iterator[Path]:
    """Yields the folders and links that lead to a path, and what it names in the end, from the root on."""
    at, left, links = Path("/"), list(reversed(path.parts[1:])), 0
    yield at
    while left:
        at /= left.pop()
        yield at
        if at.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = at.readlink()
            at = Path("/") if target.is_absolute() else at.parent
            left += reversed(target.parts[target.is_absolute() :])


def _others(status: os.stat_result) -> int:
    """Returns the bits by which others than root may write."""
    return stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)


def _judge(path: Path, status: os.stat_result, forbidden: int) -> None:
    if status.st_uid:
        try:
            user = pwd.getpwuid(status.st_uid).pw_name
        except KeyError:  # a container's user without a name
            user = f"'#{status.st_uid}'"
        raise ConfigError(f"{path} belongs to {user}, and root acts for no other user: sudo -u {user} kctl …")
    if others_can_write(path, status.st_mode & forbidden):
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(
            f"{path} has mode {mode:04o}, other users can write to it, and root acts on nothing that they can change: "
            f"chmod go-w {path}, or sudo -u USER kctl …"
        )
