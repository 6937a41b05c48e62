"""Repeats a question: redrawn in place on a terminal, one answer after another into a pipe."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from threading import Event

from kctl.cli.table import clean, clip
from kctl.errors import KctlError
from kctl.fields import moment
from kctl.terminal import plain
from kctl_agent.errors import AgentError

View = tuple[str, str | None]
"""Text for stdout, and a remark."""

_HOME, _TO_END_OF_LINE, _TO_END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(poll: Callable[[], View], seconds: float, title: str, separator: str) -> None:
    """Shows what `poll` returns every `seconds` until Ctrl-C, with exit code 0. On a terminal an absent master is only
    a remark; elsewhere its error ends a script."""
    pause = Event()
    try:
        if not sys.stdout.isatty():
            _print_on(poll, seconds, separator, pause)
        while True:
            try:
                text, remark = poll()
            except (KctlError, AgentError) as error:
                if not error.retriable:
                    raise
                text, remark = "", f"kctl: {error}"
            _redraw([f"{title}  {moment(time.time())}", "", *text.split("\n"), *([remark] if remark else [])])
            pause.wait(seconds)
    except KeyboardInterrupt:
        return


def _print_on(poll: Callable[[], View], seconds: float, separator: str, pause: Event) -> None:
    while True:
        text, remark = poll()
        sys.stdout.write(f"{text}\n{separator}")
        sys.stdout.flush()
        if remark:
            sys.stderr.write(f"{remark}\n")
        pause.wait(seconds)


def _redraw(lines: list[str]) -> None:
    """Overwrites the old text, because clearing it first would flicker; cuts what does not fit."""
    columns, rows = shutil.get_terminal_size()
    if len(lines) >= rows:
        lines = [*lines[: rows - 2], f"… {len(lines) - rows + 2} more lines"]
    body = "".join(f"{clip(clean(line), columns)}{_TO_END_OF_LINE}\n" for line in lines)
    screen = plain(sys.stdout)
    screen.write(_HOME + body + _TO_END_OF_SCREEN)
    screen.flush()
