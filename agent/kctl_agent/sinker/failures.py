"""The exception for a failed handler call, and a log that it cannot flood."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from kctl_agent.errors import AgentError, Undecodable
from kctl_agent.process.tracebacks import indented
from kctl_agent.sinker.in_flight import Final

REPEAT_SECONDS = 60.0
"""A known traceback is logged again after this time; its sentence always is."""
MAX_KINDS = 20


class HandlerError(AgentError):
    """The handler raised, took too long, or returned a wrong result; the sentence names handler and messages."""

    code = "handler_failed"

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence)
        self.trace = trace

    @property
    def text(self) -> str:
        if isinstance(self.__cause__, Undecodable):
            return Final(self.__cause__)
        return f"{self}\n{self.trace}" if self.trace else str(self)


class FailureLog:
    """Logs the traceback once a minute per place. From any thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: OrderedDict[str, float] = OrderedDict()

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
    lines = trace.splitlines()
    places = [line for line in lines if line.lstrip(" |+").startswith('File "')]
    return "\n".join([*places, lines[-1].partition(":")[0]])
