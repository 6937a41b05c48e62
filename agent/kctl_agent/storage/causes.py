"""The cause of a dead letter (exception class and line in the user's code), read from its stored error. Pure."""

import re
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

MAX_CLASS_CHARACTERS = 120

_NOT_THE_USERS = (
    f"{PurePath(__file__).parents[1]}/",
    "site-packages",
    "dist-packages",
    "pyspark",
    sysconfig.get_path("stdlib"),
    "<",
)
_FRAME = re.compile(r'^[ |+]*File "([^"\n]+)", line (\d{1,9})', re.MULTILINE)
_RAISED = re.compile(r"\braised ([A-Za-z_][\w.]*)(?=:| on |$)|^([A-Za-z_][\w.]*)(?=:|$)")
_MESSAGES = re.compile(r" on \S+ offsets? [^()]*\(\d+ messages?\)$")
"""The end of a handler error's sentence, see `kctl_agent.sinker.handler.described`."""
_EXCEPTION = re.compile(r"\w*(Error|Exception|Exit|Interrupt|Timeout|Warning)|([A-Z][a-z0-9]+){2,}")
"""Matches a class name. A reason that a user wrote may contain any word."""
_TIMED_OUT = re.compile(r"the handler \S+ did not return within \S+ s")
RETURNED_FALSE = "the handler returned False"
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


class DeathCause(NamedTuple):
    error_class: str
    """If no exception was raised, the sentence without the parts that vary between messages."""
    line: str  # for example `shop.py:7`; empty without a traceback


def public_class(error_class: str) -> str:
    """Returns `error_class` if it names an exception. Otherwise returns a fixed text, which quotes no message."""
    if _EXCEPTION.fullmatch(error_class):
        return error_class
    if error_class == RETURNED_FALSE:
        return "returned False"
    return "timed out" if _TIMED_OUT.fullmatch(error_class) else "a reason from your code"


@lru_cache(maxsize=256)
def cause_of(error: str) -> DeathCause:
    sentence = sentence_of(error)
    raised = _RAISED.search(sentence)
    found = (raised[1] or raised[2]).rpartition(".")[2] if raised else _NUMBER.sub("N", _MESSAGES.sub("", sentence))
    line = innermost((name, int(number)) for name, number in _FRAME.findall(error))
    return DeathCause(found[:MAX_CLASS_CHARACTERS] or "no reason", line)


def sentence_of(error: str) -> str:
    """Returns the first line of an error. If the error is a bare traceback, returns the last line."""
    lines = [line for line in error.splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def traceback_in(error: str) -> str | None:
    first, _, rest = error.strip().partition("\n")
    return error if first.startswith("Traceback") else rest or None


def innermost(frames: Iterable[tuple[str, int]]) -> str:
    """Returns file and line of the last frame in the user's own code, or an empty text if there is none."""
    own = [(name, line) for name, line in frames if not any(part in name for part in _NOT_THE_USERS)]
    return f"{PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""
