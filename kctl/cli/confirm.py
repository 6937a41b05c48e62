"""A yes-or-no question at the terminal before a change is made."""

from __future__ import annotations

import sys

from kctl.cli.table import clean
from kctl.errors import UsageError


def confirm(question: str) -> None:
    """Continues only after a yes. Raises UsageError without a terminal, SystemExit after a no."""
    if not sys.stdin.isatty():
        raise UsageError(f"{question} stdin is not a terminal, so it cannot be confirmed: use --yes")
    if not confirmed(question):
        raise SystemExit(1)


def confirmed(question: str) -> bool:
    """Asks on stderr; only `y` and `yes` on stdin mean yes. Raises KeyboardInterrupt after ending the line."""
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
