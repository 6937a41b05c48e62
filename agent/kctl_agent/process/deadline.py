"""A thread's deadline for all that it waits for, whatever hangs: absolute, and passed on to threads that work for it.

A worker's main thread begins one with each turn, for a group takes a member that does not poll for dead.
"""

from __future__ import annotations

import threading
import time

_NEVER = float("inf")
NEVER = (_NEVER, _NEVER)
"""No deadline, for `go_on`."""
_of = threading.local()


def begin(seconds: float) -> tuple[float, float]:
    """Sets this thread's deadline. Returns what `go_on` takes, for another thread that works for this one."""
    _of.seconds, _of.at = seconds, time.monotonic() + seconds
    return _of.seconds, _of.at


def go_on(begun: tuple[float, float]) -> None:
    """Gives this thread the deadline of the one that has begun it."""
    _of.seconds, _of.at = begun


def left() -> float:
    """Returns the seconds until the deadline; infinite in a thread without one, negative when it is over."""
    at: float = getattr(_of, "at", _NEVER)
    return at - time.monotonic()


def allows(seconds: float) -> bool:
    """Whether something may begin that takes so long at most; what takes half of all the time may in the first half."""
    all_of_it: float = getattr(_of, "seconds", _NEVER)
    return left() >= min(seconds, all_of_it / 2)
