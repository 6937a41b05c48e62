"""The progress of `kctl kafka produce`: what the brokers have acknowledged, in a line on a terminal's stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kctl.terminal import plain

if TYPE_CHECKING:
    from kctl.kafka.delivery import DeliveryReport

_SHOW_SECONDS = 0.2
_BAR_COLUMNS = 30
_LINE_ENDS = 1
"""Bytes of a file that belong to a message but are not in it."""


class ProgressLine:
    """A line of progress. `show` may be called for each message: it reads the clock, and writes five times a second."""

    def __init__(self, report: DeliveryReport, total_bytes: int | None, began: float) -> None:
        self.is_shown = sys.stderr.isatty()
        self._report = report
        self._total_bytes = total_bytes
        self._began = began
        self._next = began

    def show(self) -> None:
        if not self.is_shown:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _SHOW_SECONDS
        messages, size = self._report.messages, self._report.bytes
        plain(sys.stderr).write(f"\r{line(messages, size, self._total_bytes, now - self._began)}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        """Leaves the terminal as if nothing had been shown."""
        if self.is_shown:
            plain(sys.stderr).write("\r\x1b[K")


def line(messages: int, size: int, total_bytes: int | None, seconds: float) -> str:
    """Formats `[### ] 12% 40,000 messages 5.1 MB/s 21,000 a second 4 s left`; without a total no bar and no rest."""
    seconds = max(seconds, 0.001)
    speed = f"{messages:,} messages  {size / seconds / 1e6:.1f} MB/s  {messages / seconds:,.0f} a second"
    if not total_bytes:
        return speed
    part = min((size + messages * _LINE_ENDS) / total_bytes, 1.0)
    left = f"  {seconds * (1 - part) / part:,.0f} s left" if part else ""
    return f"[{'#' * int(part * _BAR_COLUMNS):<{_BAR_COLUMNS}}] {part:4.0%}  {speed}{left}"
