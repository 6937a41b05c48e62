"""The reason why a supervised process ended, in one line, from its exit code and the last line of its log. Pure."""

from __future__ import annotations

import re
import signal

_QUIET = re.compile(r"^\S+Z (DEBUG|INFO|WARNING) ")
"""Matches a line of a process of ours (`kctl_agent.process.bootstrap`) that reports no error."""
_HEAD = re.compile(r"^\d{4}-\S+Z [A-Z]+ \S+ ")
"""Matches time, level and logger of such a line; what an operator reads is the rest."""
_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL|Fatal)\b|\w*(Error|Exception)\b")


def cause(code: int) -> str:
    """Returns the ending in words: `signal 9, SIGKILL`, or `exit code 1`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def why(code: int, last_line: str | None) -> str:
    """Returns what an operator reads as the last error of a process.

    A process of ours that ends by itself writes why in its last line. One that a signal has ended could not: its last
    line is about something else, unless it is an error.
    """
    if last_line is None:
        return f"{cause(code)}; its log is empty"
    if code < 0:
        return f"{cause(code)}; {_sentence(last_line)}" if _is_error(last_line) else cause(code)
    return cause(code) if _QUIET.match(last_line) else _sentence(last_line)


def _sentence(line: str) -> str:
    return _HEAD.sub("", line)


def _is_error(line: str) -> bool:
    return _QUIET.match(line) is None and _ERROR.search(line) is not None
