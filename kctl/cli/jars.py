"""`kctl jars fetch`, `kctl jars verify` and `kctl jars paths`"""

from __future__ import annotations

import sys
from typing import Annotated

from kctl.cli.command import CommandGroup, argument
from kctl.cli.output import echo
from kctl.cli.signature import command
from kctl.errors import UsageError
from kctl.jars.fetcher import fetch
from kctl.jars.lock import LOCKS, USUAL, LockName, jar_paths, jars_dir

LocksArgument = Annotated[
    list[str] | None,
    argument("LOCK", help=f"{', '.join(LOCKS)}; default: {' and '.join(USUAL)}."),
]


def _fetch(locks: LocksArgument = None) -> None:
    """Download missing jars.

    They go into a cache, verified by sha256. KCTL_MAVEN_REPOSITORY names a mirror, KCTL_CACHE_DIR the cache.
    """
    _bring(_chosen(locks), verify=False)


def _verify(locks: LocksArgument = None) -> None:
    """Check the jars in the cache.

    Compares the sha256 of each, and downloads the wrong ones again.
    """
    _bring(_chosen(locks), verify=True)


def _paths(lock: Annotated[str, argument("LOCK", help=f"{', '.join(LOCKS)}.")]) -> None:
    """Print the paths of a lock's jars, separated by commas as `spark-submit --jars` takes them."""
    (chosen,) = _chosen([lock])
    echo(",".join(map(str, jar_paths(chosen))))


def _bring(locks: list[LockName], *, verify: bool) -> None:
    downloaded = fetch(locks, sys.stderr.write, verify=verify)
    echo(f"{downloaded} downloaded, all in {jars_dir()}")


def _chosen(locks: list[str] | None) -> list[LockName]:
    for name in locks or ():
        if name not in LOCKS:
            raise UsageError(f"there is no set of jars `{name}`: choose from {', '.join(LOCKS)}")
    return [lock for lock in LOCKS if lock in (locks or USUAL)]


COMMAND = CommandGroup(
    "jars",
    "Fetch, verify or locate the jars of Spark and the demo.",
    (command("fetch", _fetch), command("verify", _verify), command("paths", _paths)),
)
