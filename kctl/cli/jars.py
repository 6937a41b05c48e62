"""`kctl jars fetch`, `kctl jars verify` and `kctl jars paths`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.jars import LOCKS, USUAL, LockName, fetch, jar_paths, jars_dir
from kctl.jars.progress import shown_on

__all__ = ["register"]

LocksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="LOCK", show_default=False, help=f"{', '.join(LOCKS)}; default: {' and '.join(USUAL)}."),
]


def register(app: typer.Typer) -> None:
    jars = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Fetch, verify or locate the jars of Spark and the demo."
    )
    jars.command("fetch")(_fetch)
    jars.command("verify")(_verify)
    jars.command("paths")(_paths)
    app.add_typer(jars, name="jars")


def _fetch(locks: LocksArgument = None) -> None:
    """Download the jars that are missing.

    They go into a cache, checked by sha256. KCTL_MAVEN_REPOSITORY names a mirror, KCTL_CACHE_DIR the cache.
    """
    _bring(_chosen(locks), verify=False)


def _verify(locks: LocksArgument = None) -> None:
    """Check the jars in the cache.

    Reads each, compares its sha256, and downloads the wrong ones again.
    """
    _bring(_chosen(locks), verify=True)


def _paths(lock: Annotated[str, typer.Argument(metavar="LOCK", help=f"{', '.join(LOCKS)}.")]) -> None:
    """Print the paths of a lock's jars.

    Separated by commas, as `spark-submit --jars` takes them.
    """
    (chosen,) = _chosen([lock])
    typer.echo(",".join(map(str, jar_paths(chosen))))


def _bring(locks: list[LockName], *, verify: bool) -> None:
    with shown_on(sys.stderr) as progress:
        downloaded = fetch(locks, progress, verify=verify)
    typer.echo(f"{downloaded} downloaded, all in {jars_dir()}")


def _chosen(locks: list[str] | None) -> list[LockName]:
    for name in locks or ():
        if name not in LOCKS:
            raise UsageError(f"there is no jar lock `{name}`; there are {', '.join(LOCKS)}")
    return [lock for lock in LOCKS if lock in (locks or USUAL)]
