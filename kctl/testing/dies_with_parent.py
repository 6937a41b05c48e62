"""Children of the demo that do not outlive it, however it ends."""

from __future__ import annotations

import shutil


def dies_with_parent(signal_name: str) -> list[str]:
    """Returns the words before a command that have the kernel send it this signal when the thread that starts it ends
    (PR_SET_PDEATHSIG), by util-linux: a preexec_fn is not safe in a process with threads. Empty where there is none."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal_name] if setpriv else []
