"""A process of ours on a pseudo terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from contextlib import suppress

from tests.command_lines import KCTL

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`kctl` on a pseudo terminal. `seen` is all output so far."""

    def __init__(self, *words: str, columns: int = 60, rows: int = 8) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*KCTL, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env | {"TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, pattern: str, seconds: float = 20.0, *, after: int = 0) -> str:
        """Returns all output, once the pattern matches after character `after`."""
        over = threading.Event()
        timer = threading.Timer(seconds, over.set)
        timer.start()
        try:
            while not re.search(pattern, self.seen[after:], re.DOTALL):
                assert not over.is_set(), self.seen
                if select.select([self._own], [], [], 0.1)[0]:
                    self.seen += os.read(self._own, 65536).decode()
        finally:
            timer.cancel()
            timer.join()
        return self.seen

    def press(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)


def plain(text: str) -> list[str]:
    return _ESCAPE.sub("", text).replace("\r", "").split("\n")


def on_a_terminal(
    *words: str, until: str | None = None, code: int | None = None, command: Sequence[str] = KCTL
) -> bytes:
    """Returns the terminal's output once the command has ended with this exit code, or once it contains `until`."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "300", "LINES": "40"}
    with subprocess.Popen([*command, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # EIO is the end of a terminal
            while data := terminal.read(1 << 16):
                seen += data
                if until is not None and until in seen.decode("utf-8", "replace"):
                    process.terminate()
    assert code in (None, process.returncode), seen
    return seen
