"""`python -m kctl.jars fetch [--verify] [broker] [spark] [s3]`: what the set-up calls before `kctl` itself can run."""

from __future__ import annotations

import argparse
import sys
import time

from kctl.errors import KctlError
from kctl.jars import LOCKS, USUAL, fetch, jars_dir
from kctl.jars.progress import shown_on

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Fetches, prints in one line how it went, returns the exit code."""
    names = f"one of {', '.join(LOCKS)}; default: {' and '.join(USUAL)}"
    parser = argparse.ArgumentParser(prog="python -m kctl.jars", description="Fetch the locked jars into the cache.")
    parser.add_argument("action", choices=["fetch"])
    parser.add_argument("locks", nargs="*", metavar="LOCK", help=names)
    parser.add_argument("--verify", action="store_true", help="read the jars that are there and compare their sha256")
    options = parser.parse_args(arguments)
    if unknown := set(options.locks) - set(LOCKS):
        parser.error(f"there is no lock {', '.join(sorted(unknown))}; there are {', '.join(LOCKS)}")
    started = time.monotonic()
    try:
        with shown_on(sys.stderr) as progress:
            downloaded = fetch(options.locks or USUAL, progress, verify=options.verify)
    except KctlError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stderr.write(f"jars: {downloaded} downloaded, all in {jars_dir()} ({time.monotonic() - started:.1f} s)\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
