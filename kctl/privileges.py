"""Root acts as the fleet's own user on the fleet's files.

A file that root makes in a user's folder locks that user's fleet out (SQLite's `-wal` and `-shm`), and a link that the
user has put there leads root to any file of the machine.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kctl.errors import UsageError

__all__ = ["User", "as_owner", "become", "environment_of", "owner_to_act_as"]

_HARMLESS = frozenset({"PATH", "LANG", "TZ", "JAVA_HOME", "SPARK_HOME", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR"})
_HARMLESS_PREFIXES = ("LC_",)


class User(NamedTuple):
    """With its groups, as a login gives them."""

    uid: int
    gid: int
    groups: list[int]
    home: str


@contextmanager
def as_owner(first: Path, *others: Path) -> Iterator[None]:
    """With the effective user of a fleet's files while they are used; changes nothing for anybody but root.

    That is `owner_to_act_as` of these. The real user stays, so the audit log names that user. Not thread-safe: it is
    the process's user that changes.

    Raises:
        UsageError: they belong to several users, so nobody's rights are the right ones.
    """
    if (user := owner_to_act_as(first, *others)) is None:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(user.groups)
    try:
        os.setegid(user.gid)
        os.seteuid(user.uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def owner_to_act_as(first: Path, *others: Path) -> User | None:
    """The user, beside root, who owns these as far as they are there; None where all is root's, and for anybody
    but root. The first may be a link: then its own owner counts.

    Raises:
        UsageError: as `as_owner`.
    """
    if os.geteuid() != 0 or not (owner := _owner(first, *others)):
        return None
    uid, gid = owner
    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # a container's user without a name
        return User(uid, gid, [], "/")
    return User(uid, gid, os.getgrouplist(user.pw_name, gid), user.pw_dir)


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Root's process is this user's from now on, with no way back."""
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def environment_of(user: User) -> dict[str, str]:
    """For a process of another user: what a login of theirs would have of ours."""
    kept = {name: text for name, text in os.environ.items() if name in _HARMLESS or name.startswith(_HARMLESS_PREFIXES)}
    return {**kept, "HOME": user.home}


def _owner(first: Path, *others: Path) -> tuple[int, int] | None:
    """User and group; None where all is root's."""
    owners: dict[int, int] = {}
    for each in (first, *others):
        try:
            found = os.stat(each, follow_symlinks=each is not first)
        except OSError:  # it is not there, or nobody can use it
            continue
        if found.st_uid:
            owners.setdefault(found.st_uid, found.st_gid)
    if len(owners) > 1:
        users = ", ".join(str(uid) for uid in sorted(owners))
        raise UsageError(
            f"{', '.join(map(str, (first, *others)))} belong to several users (uids {users}): run this as the user of "
            "the fleet, not as root"
        )
    return next(iter(owners.items()), None)
