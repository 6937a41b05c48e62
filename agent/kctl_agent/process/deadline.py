"""One deadline for all that a thread does between two polls. A consumer group evicts a member that polls too late."""

import threading
import time

_NEVER = float("inf")
NEVER = (_NEVER, _NEVER)
_of = threading.local()


def begin(seconds: float) -> tuple[float, float]:
    """Sets this thread's deadline. A helper thread passes the result to `go_on` to share the deadline."""
    _of.seconds, _of.at = seconds, time.monotonic() + seconds
    return _of.seconds, _of.at


def go_on(begun: tuple[float, float]) -> None:
    _of.seconds, _of.at = begun


def left() -> float:
    """Returns the seconds until the deadline: infinite without a deadline, negative after it."""
    at: float = getattr(_of, "at", _NEVER)
    return at - time.monotonic()


def allows(seconds: float) -> bool:
    """Returns whether `seconds` are left for a step. In the first half of the whole time, any step is allowed."""
    all_of_it: float = getattr(_of, "seconds", _NEVER)
    return left() >= min(seconds, all_of_it / 2)
