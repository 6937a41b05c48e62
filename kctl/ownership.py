"""Checks that other users do not control the files that kctl uses.

A configuration can make kctl import code, send a file's content as a password, write logs and signal processes. As
root, kctl therefore rejects a configuration if another user can replace it, or a folder or link on its path.
"""

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from kctl.errors import ConfigError, RunDirUnusable

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAX_LINKS = 40  # Linux has the same limit (path_resolution(7))


def refuse_others(path: Path, descriptor: int | None = None) -> None:
    """As root, checks that no other user owns or can write to a path, or a folder on the way to it. If the file is
    missing, checks only the folders. Pass `descriptor` if the file is open already. Raises ConfigError."""
    if os.geteuid() != 0:
        return
    try:
        for step in _steps(path.absolute()):
            status = step.lstat()
            is_open = stat.S_ISDIR(status.st_mode) and not status.st_mode & stat.S_ISVTX
            _judge(step, status, _others(status) if is_open else 0)  # with a sticky bit, others cannot replace files
        status = os.stat(path if descriptor is None else descriptor)
        _judge(path, status, _others(status))
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise ConfigError(f"{path} cannot be used: {error.strerror}") from None


def check_mode(setting: str, path: Path, mode: int) -> None:
    """Checks that `path`, which `setting` names, is not world-writable. Raises RunDirUnusable."""
    if others_can_write(path, mode & stat.S_IWOTH):
        own = f"name a folder of the fleet's own in {setting}"
        advice = own if mode & stat.S_ISVTX else f"chmod o-w {path}, or correct {setting}"
        raise RunDirUnusable(f"{path} has mode {mode:04o}, all users can write to it: {advice}")


def others_can_write(path: Path, bits: int) -> bool:
    """Returns whether others can write to `path`. `bits` are the bits of its mode that let others write."""
    # Kubernetes mounts a ConfigMap read-only, with mode 0777.
    return bits != 0 and not os.statvfs(path).f_flag & os.ST_RDONLY


def _steps(path: Path) -> Iterator[Path]:
    # `/`, each folder and link on the way, and the final target.
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


def user_name(uid: int) -> str:
    """Returns the user's name, or `uid N` if there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _others(status: os.stat_result) -> int:
    return stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)


def _judge(path: Path, status: os.stat_result, forbidden: int) -> None:
    if status.st_uid:
        try:
            user = pwd.getpwuid(status.st_uid).pw_name
        except KeyError:  # a container's user without a name
            user = f"'#{status.st_uid}'"
        raise ConfigError(f"{path} belongs to {user}, and root does not act for others: sudo -u {user} kctl …")
    if others_can_write(path, status.st_mode & forbidden):
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(
            f"{path} has mode {mode:04o}, so other users can write to it, and root does not trust such files: "
            f"chmod go-w {path}, or sudo -u USER kctl …"
        )


def open_regular(path: Path, flags: int, *, is_link_fine: bool = False) -> int:
    """Opens a regular file. A new file gets mode 0600. A file opened for writing must belong to this process's user.
    Raises OSError, also for a pipe, a folder, or (unless `is_link_fine`) a link."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if is_link_fine else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if flags & os.O_ACCMODE != os.O_RDONLY and found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, f"it belongs to uid {found.st_uid}", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def rotated(log: Path) -> Path:
    return log.with_name(log.name + ".1")
