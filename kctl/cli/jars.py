"""`kctl jars fetch`, `verify` and `paths`: the jars for Spark."""

import argparse
import sys
from collections.abc import Mapping
from functools import partial

from kctl.cli.command import Command, CommandGroup, Option
from kctl.cli.output import echo
from kctl.errors import UsageError
from kctl.jars.ivy import fetch
from kctl.jars.lock import LOCKS, USUAL, LockName, jar_paths, jars_dir

_ANY_LOCK = ", ".join(f"`{each}`" for each in LOCKS)
_LOCKS = Option(("LOCK",), f"{_ANY_LOCK}; default: {' and '.join(USUAL)}", "words")


def _fetch(options: argparse.Namespace, _env: Mapping[str, str], *, verify: bool) -> None:
    downloaded = fetch(_chosen(options.lock), sys.stderr.write, verify=verify)
    echo(f"{downloaded} downloaded, all in {jars_dir()}")


def _paths(options: argparse.Namespace, _env: Mapping[str, str]) -> None:
    (chosen,) = _chosen([options.lock])
    echo(",".join(map(str, jar_paths(chosen))))


def _chosen(locks: list[str] | None) -> list[LockName]:
    for name in locks or ():
        if name not in LOCKS:
            raise UsageError(f"there is no set of jars `{name}`: choose from {', '.join(LOCKS)}")
    return [lock for lock in LOCKS if lock in (locks or USUAL)]


COMMAND = CommandGroup(
    "jars",
    "Fetch, verify or locate the jars of Spark and the demo.",
    (
        Command(
            "fetch",
            "Download missing jars.",
            (_LOCKS,),
            details="Verifies the jars by sha256 and stores them in a cache. KCTL_MAVEN_REPOSITORY names a mirror, "
            "KCTL_CACHE_DIR the cache.",
            run=partial(_fetch, verify=False),
        ),
        Command(
            "verify",
            "Check the jars in the cache.",
            (_LOCKS,),
            details="Compares the sha256 of each jar, and downloads wrong jars again.",
            run=partial(_fetch, verify=True),
        ),
        Command(
            "paths",
            "Print the paths of a lock's jars, separated by commas as `spark-submit --jars` takes them.",
            (Option(("LOCK",), _ANY_LOCK, is_required=True),),
            run=_paths,
        ),
    ),
)
