"""Formats tracebacks of the user's code as bounded text for logs and dead letters, without values of variables."""

import importlib
import os
import sys
import traceback
from contextlib import suppress

from kctl_agent.storage.causes import innermost

MAX_CHARACTERS = 6000  # a longer traceback loses its middle, because its start and end matter most
_MAX_LINE_CHARACTERS = 400
_MAX_FRAMES = 30
MAX_SHOWN_CHARACTERS = 200

_OWN_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NOT_THE_USERS = (_OWN_FOLDER, "<frozen importlib", str(importlib.__file__))


def traceback_of(error: BaseException, *, own_frames: bool = False) -> str:
    try:
        formatted = traceback.TracebackException.from_exception(error, limit=-_MAX_FRAMES, compact=True)
        if not own_frames:
            _leave_out_own(formatted)
        return _bounded("".join(formatted.format()))
    except Exception as trouble:  # a user's exception may have any attribute, and raise when it is printed
        return f"(no traceback of {type(error).__name__}: {type(trouble).__name__})"


def stack_of(thread: int | None) -> str:
    frame = sys._current_frames().get(thread) if thread is not None else None  # noqa: SLF001 - there is no other way
    if frame is None:
        return ""
    frames = [each for each in traceback.extract_stack(frame, _MAX_FRAMES) if not each.filename.startswith(_OWN_FOLDER)]
    return _bounded("Stack of the call (most recent call last):\n" + "".join(traceback.format_list(frames)))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without the Java stack trace that Py4J appends."""
    return str(error).split("\n", 1)[0].rstrip("\r")


def place_of(error: BaseException) -> str:
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    return f" ({place})" if (place := innermost(frames)) else ""


def indented(sentence: str, trace: str) -> str:
    """Joins a sentence and a trace. Indents the trace, so that its lines do not look like log entries."""
    return "\n    ".join([sentence, *trace.splitlines()])


def plain(text: str) -> str:
    """Escapes lone surrogates, which a file name may contain and UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def named(error: BaseException) -> str:
    """Returns an error's type and message, or only the type if the message is empty or `str` fails."""
    with suppress(Exception):
        if text := str(error):
            return short(f"{type(error).__name__}: {text}")
    return type(error).__name__


def short(text: str) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= MAX_SHOWN_CHARACTERS else f"{line[: MAX_SHOWN_CHARACTERS - 1]}…"


def _leave_out_own(formatted: traceback.TracebackException) -> None:
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [formatted]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.stack[:] = [frame for frame in each.stack if not frame.filename.startswith(_NOT_THE_USERS)]
        waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _bounded(text: str) -> str:
    lines = [
        line if len(line) <= _MAX_LINE_CHARACTERS else f"{line[:_MAX_LINE_CHARACTERS]}…" for line in text.splitlines()
    ]
    whole = plain("\n".join(lines))
    if len(whole) <= MAX_CHARACTERS:
        return whole
    half = MAX_CHARACTERS // 2
    return f"{whole[:half]}\n  … {len(whole) - 2 * half} characters left out …\n{whole[-half:]}"
