"""The screen of commands that fill it: keys as they are pressed, and lines that fit."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kctl.cli.table import clip

if TYPE_CHECKING:
    from rich.text import Text

Key = Callable[[float], str | None]
"""A function that waits so many seconds for a key; None when there was none. Arrows and the like are one key."""
_ESCAPE = "\x1b"
_READ_BYTES = 256


@contextmanager
def keys() -> Iterator[Key]:
    """Yields the keys of the terminal that stdin is, which echoes nothing meanwhile."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    pending: list[str] = []

    def key(seconds: float) -> str | None:
        if not pending:
            if not select.select([descriptor], [], [], max(seconds, 0.0))[0]:
                return None
            text = os.read(descriptor, _READ_BYTES).decode("utf-8", "replace")
            pending.extend([text] if text.startswith(_ESCAPE) else text)
        return pending.pop(0) if pending else None

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def line(text: str, columns: int, style: str = "") -> Text:
    """Returns a line that fits. Not a str: rich would read `[link=…]` in it as markup."""
    from rich.text import Text

    return Text(clip(text, columns), style, no_wrap=True)
