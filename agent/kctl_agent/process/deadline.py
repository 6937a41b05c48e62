"""A thread's absolute deadline for all its waits, because a group considers a member dead if it does not poll."""

import threading
import time

_NEVER = float("inf")
NEVER = (_NEVER, _NEVER)
_of = threading.local()


def begin(seconds: float) -> tuple[float, float]:
    """Sets this thread's deadline. Pass the result to `go_on` in a helper thread."""
    _of.seconds, _of.at = seconds, time.monotonic() + seconds
    return _of.seconds, _of.at


def go_on(begun: tuple[float, float]) -> None:
    _of.seconds, _of.at = begun


def left() -> float:
    """Seconds until the deadline; infinite without a deadline, negative after it."""
    at: float = getattr(_of, "at", _NEVER)
    return at - time.monotonic()


def allows(seconds: float) -> bool:
    """Returns whether there is time for a step of `seconds`. A step longer than half of the whole time may begin in the
    first half."""
    all_of_it: float = getattr(_of, "seconds", _NEVER)
    return left() >= min(seconds, all_of_it / 2)
