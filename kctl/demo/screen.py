"""The demo's output while it runs: a line every two seconds. `kctl top` in another terminal has a live table."""

from __future__ import annotations

import sys
import time
from typing import Any

LINE_EVERY_SECONDS = 2.0


class Screen:
    """The demo's output while it runs; goes to stderr with `-o json`."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._file = sys.stderr if to_stderr else sys.stdout
        self._line_at = float("-inf")

    def print_line(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def show(self, head: str, workers: list[dict[str, Any]]) -> None:
        """Prints a line if the last one is old enough."""
        if time.monotonic() - self._line_at >= LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            self.print_line(f"{head} · {', '.join(map(_in_words, workers))}")


def _in_words(worker: dict[str, Any]) -> str:
    rate = worker["rows_per_second"]
    return f"{worker['name']} {worker['state'] or 'starting'}{'' if rate is None else f' {rate:.0f} rows/s'}"
