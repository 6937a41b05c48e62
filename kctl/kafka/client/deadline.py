"""The deadline of a question to brokers, and until when trying again still makes sense."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.1
"""The pause before a request is repeated."""
_RESERVE = 0.2


class Deadline:
    """A deadline `timeout_seconds` after the making, or the last `renew`. Without retries nothing is asked again: for
    callers that poll anyway."""

    def __init__(
        self, timeout_seconds: float, *, has_retries: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._retry_share = 0.5 if has_retries else 0.0
        self.renew()

    def renew(self) -> None:
        """Begins the whole time again."""
        self._at = self._clock() + self.timeout_seconds

    @property
    def left_seconds(self) -> float:
        return max(self._at - self._clock(), 0.0)

    @property
    def left_milliseconds(self) -> float:
        """The time left as kafka-python takes it; at least 1, for 0 would be no limit."""
        return max(self.left_seconds * 1000, 1)

    @property
    def may_retry(self) -> bool:
        """Whether what fails is worth another try: for half of the time. Then there is still time to report it."""
        return self.left_seconds > self.timeout_seconds * (1 - self._retry_share)

    @property
    def may_wait(self) -> bool:
        """Whether what is only just starting is worth waiting for: until a fifth of the time is left. One group that
        never stops loading must leave time for the questions that come after it."""
        return self._retry_share > 0 and self.left_seconds > self.timeout_seconds * _RESERVE + PAUSE_SECONDS
