"""Repeats a command's output for `--watch`. On a terminal, new output overwrites the old."""

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from kctl.cli.table import clean, clip
from kctl.errors import KctlError
from kctl.fields import moment
from kctl.terminal import plain
from kctl_agent.errors import AgentError

View = tuple[str, str | None]  # text for stdout, and a remark

_HOME, _TO_END_OF_LINE, _TO_END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(poll: Callable[[], View], seconds: float, title: str, separator: str) -> None:
    """Prints the result of `poll` every `seconds` until Ctrl-C. On a terminal, prints `title` above each result, and
    continues after retriable errors. Without a terminal, prints `separator` below each, and raises all errors."""
    pause, is_terminal = Event(), sys.stdout.isatty()
    with suppress(KeyboardInterrupt):
        while True:
            try:
                text, remark = poll()
            except (KctlError, AgentError) as error:
                if not error.retriable or not is_terminal:
                    raise
                text, remark = "", f"kctl: {error}"
            if is_terminal:
                _redraw([f"{title}  {moment(time.time())}", "", *text.split("\n"), *([remark] if remark else [])])
            else:
                print(text, end=f"\n{separator}", flush=True)  # noqa: T201
                sys.stderr.write(f"{remark}\n" if remark else "")
            pause.wait(seconds)


def _redraw(lines: list[str]) -> None:
    columns, rows = shutil.get_terminal_size()
    if len(lines) >= rows:
        lines = [*lines[: rows - 2], f"… {len(lines) - rows + 2} more lines"]
    body = "".join(f"{clip(clean(line), columns)}{_TO_END_OF_LINE}\n" for line in lines)
    screen = plain(sys.stdout)
    # Overwrites the old lines, because clearing the screen first would flicker.
    screen.write(_HOME + body + _TO_END_OF_SCREEN)
    screen.flush()
