"""A handler's failure as an exception, and the log that it does not flood."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from kctl_agent.errors import AgentError
from kctl_agent.process.tracebacks import indented

REPEAT_SECONDS = 60.0
"""Seconds until the traceback of the same failure is logged again; its one line is logged each time."""
MAX_KINDS = 20
"""Most different tracebacks within `REPEAT_SECONDS`, and most that are remembered."""


class HandlerError(AgentError):
    """A call of the handler failed: it raised, took too long, or returned something else than a bool or a reason for
    each message. All messages of the call count as not handled."""

    code = "handler_failed"

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.trace = trace
        """The place where it was raised, or where the call hangs; "" where that is not known."""

    @property
    def text(self) -> str:
        """Returns the sentence, then the traceback: what a dead letter keeps."""
        return f"{self}\n{self.trace}" if self.trace else str(self)


class FailureLog:
    """Logs handler errors: the sentence each time, the traceback once a minute for each place. From any thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: OrderedDict[str, float] = OrderedDict()
        """When each kind was logged, the longest ago first."""

    def error(self, error: HandlerError) -> None:
        trace = error.trace if error.trace and self._is_due(_kind(error.trace)) else ""
        self._log.error("%s", indented(str(error), trace))

    def _is_due(self, kind: str) -> bool:
        now = self._clock()
        with self._lock:
            while self._logged_at and now - next(iter(self._logged_at.values())) >= REPEAT_SECONDS:
                self._logged_at.popitem(last=False)
            if kind in self._logged_at or len(self._logged_at) >= MAX_KINDS:
                return False
            self._logged_at[kind] = now
            return True


def _kind(trace: str) -> str:
    """The places that a trace goes through and the type of the exception, without its message, which may differ."""
    lines = trace.splitlines()
    places = [line for line in lines if line.lstrip(" |+").startswith('File "')]
    return "\n".join([*places, lines[-1].partition(":")[0]])
