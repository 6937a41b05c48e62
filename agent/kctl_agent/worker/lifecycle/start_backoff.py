"""When a worker may try again to start a query, after what kept it from starting one.

Pure: no clock; times are the caller's monotonic seconds.
"""

from __future__ import annotations

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS

__all__ = ["StartBackoff"]


class StartBackoff:
    """For one thread; `reset` may be called from any."""

    def __init__(self) -> None:
        self.failures = 0
        """In a row, without a batch between them."""
        self._retry_at = 0.0

    def failed(self, now: float) -> float:
        """A query could not be started. Returns after how many seconds it is tried again."""
        seconds = RETRY_SECONDS[min(self.failures, len(RETRY_SECONDS) - 1)]
        self.failures += 1
        self._retry_at = now + seconds
        return seconds

    def is_due(self, now: float) -> bool:
        """A query may be started."""
        return now >= self._retry_at

    def reset(self) -> None:
        """A batch has ended well; what is waited for now goes on being waited for."""
        self.failures = 0
