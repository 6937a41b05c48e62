from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

ASK = "from kctl.cli import entry, confirm; entry._dispatched = lambda *_: int(confirm.confirmed('Do it?')); "
QUESTION = b"Do it? [y/N] "


def asked(keys: bytes) -> tuple[int, str]:
    """Presses the keys at the question and returns the exit code and stderr."""
    ours, terminal = pty.openpty()
    words = [sys.executable, "-c", f"{ASK}raise SystemExit(entry.run(['top']))"]
    try:
        with subprocess.Popen(words, stdin=terminal, stderr=subprocess.PIPE) as command:
            assert command.stderr is not None
            printed = command.stderr.read(len(QUESTION))
            if keys == b"\x03":
                command.send_signal(
                    signal.SIGINT
                )  # the terminal controls no session of its own, so it would send no signal
            else:
                os.write(ours, keys)
            printed += command.stderr.read()
        return command.returncode, printed.decode()
    finally:
        os.close(ours)
        os.close(terminal)


@pytest.mark.parametrize(
    ("keys", "ended"),
    [
        pytest.param(b"\x03", (130, "\n"), id="ctrl-c"),
        pytest.param(b"\x04", (0, "\n"), id="ctrl-d"),
        pytest.param(b"yes\n", (1, ""), id="yes"),
        pytest.param(b"\n", (0, ""), id="nothing"),
    ],
)
def test_ctrl_c_at_a_question_exits_130_and_ends_its_line(keys: bytes, ended: tuple[int, str]) -> None:
    code, printed = asked(keys)

    assert (code, printed.removeprefix(QUESTION.decode())) == ended
