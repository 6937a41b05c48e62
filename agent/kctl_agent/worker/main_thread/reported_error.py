"""Which error a worker reports: what the next turn may heal is none before it has lasted for a grace period.

No clock: times are the caller's monotonic seconds. For one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["GRACE_SECONDS", "ReportedError"]

log = logging.getLogger("kctl_agent.worker")

GRACE_SECONDS = 10.0
"""A coordinator that moves, a commit during a rebalance, an election: they take less."""


class ReportedError:
    """`publish(error)` is called with each error to be reported, and with None when the last one is resolved."""

    def __init__(self, publish: Callable[[str | None], None]) -> None:
        self._publish = publish
        self._tolerated: dict[str, float] = {}
        """What fails just now, and since when."""
        self._about: str | None = None
        """What the last reported error is about; None when there is none."""
        self._reported = ""
        """The last one: logged once, until it is resolved."""

    def tolerate(self, what: str, error: str, now: float, grace_seconds: float = GRACE_SECONDS) -> None:
        """`what` has failed, once more or for the first time: reported only if it has for longer than the grace
        period."""
        since = self._tolerated.setdefault(what, now)
        if now - since > grace_seconds:
            self.report(what, error)
        else:
            log.debug("%s", error)

    def report(self, what: str, error: str) -> None:
        """`what` has failed, and is not expected to heal by itself."""
        if (what, error) != (self._about, self._reported):
            log.error("%s", error)
        self._about, self._reported = what, error
        self._publish(error)

    def resolve(self, what: str) -> None:
        """`what` works. An error that was reported of something else stays."""
        self._tolerated.pop(what, None)
        if self._about == what:
            self._about = None
            self._publish(None)
