"""A question that somebody at a terminal answers before a change is made."""

from __future__ import annotations

import sys

from kctl.cli.table import clean

__all__ = ["confirmed"]


def confirmed(question: str) -> bool:
    """Ask on stderr, read the answer from stdin; everything but `y` and `yes` is no.

    Raises:
        KeyboardInterrupt: Ctrl-C, after the line of the question has been ended.
    """
    sys.stdout.flush()
    try:
        sys.stderr.write(f"{clean(question)} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        raise
    if not answer:  # Ctrl-D, which leaves the cursor where it is
        sys.stderr.write("\n")
    return answer.strip().lower() in ("y", "yes")
