"""Why a supervised process ended, in one line, from its exit code and its log's last line. Pure."""

from __future__ import annotations

import re
import signal

_QUIET = re.compile(r"^\S+Z (DEBUG|INFO|WARNING) ")
"""A line of our processes (`kctl_agent.process.bootstrap`) that is not an error."""
_HEAD = re.compile(r"^\d{4}-\S+Z [A-Z]+ \S+ ")
_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL|Fatal)\b|\w*(Error|Exception)\b")


def cause(code: int) -> str:
    """`signal 9, SIGKILL`, or `exit code 1`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def why(code: int, last_line: str | None) -> str:
    """Our processes write the reason of their end as the last line. After a signal, the last line counts only if it is
    an error."""
    if last_line is None:
        return f"{cause(code)}; its log is empty"
    if _QUIET.match(last_line) or (code < 0 and not _ERROR.search(last_line)):
        return cause(code)
    sentence = _HEAD.sub("", last_line)
    return f"{cause(code)}; {sentence}" if code < 0 else sentence
