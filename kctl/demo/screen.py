"""The demo's output while it runs: a live table on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kctl.terminal import plain, shown

LINE_EVERY_SECONDS = 2.0


class Screen:
    """`print_line` prints a lasting line; `show` updates the table. To stderr with `-o json`."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._console = Console(file=plain(sys.stderr if to_stderr else sys.stdout), highlight=False)
        self._live = (
            Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        )
        self._line_at = float("-inf")

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def print_line(self, text: str) -> None:
        self._console.print(shown(text), markup=False, soft_wrap=True)  # a command must stay one line to be copied

    def show(self, head: str, offsets: list[dict[str, Any]], workers: list[dict[str, Any]]) -> None:
        if self._live:
            self._live.update(Group(Text(shown(head)), _offsets(offsets), _workers(workers)), refresh=True)
        elif time.monotonic() - self._line_at >= LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            self._console.print(shown(f"{head} · {_in_words(workers)}"), markup=False, soft_wrap=True)


def _offsets(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("topic", "partition", "current-offset", "kafka-max-offset", "remaining-count", "worker"):
        table.add_column(column, justify="left" if column in {"topic", "worker"} else "right")
    for row in rows:
        numbers = (row["partition"], row["current_offset"], row["kafka_max_offset"], row["remaining_count"])
        table.add_row(*(Text(_text(each)) for each in (row["topic"], *numbers, row["worker"])))
    return table


def _workers(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("worker", "state", "rows/s", "last-batch-seconds"):
        table.add_column(column, justify="left" if column in {"worker", "state"} else "right")
    for row in rows:
        rates = (_text(row["rows_per_second"], 0), _text(row["last_batch_seconds"], 2))
        table.add_row(*map(Text, (_text(row["name"]), _text(row["state"]), *rates)))
    return table


def _in_words(workers: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{row['name']} {row['state'] or 'starting'} {_text(row['rows_per_second'], 0)} rows/s" for row in workers
    )


def _text(value: Any, digits: int | None = None) -> str:
    if value is None:
        return "-"
    return shown(str(value), kept="") if digits is None else f"{value:.{digits}f}"
