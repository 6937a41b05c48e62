"""`ping`: proves that an agent answers, with what a supervisor needs to judge its process."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.workers import WaitingFor


@dataclass(frozen=True, slots=True)
class PingReply:
    """The reply to `ping`: which process answers, and its progress."""

    pid: int
    name: str = ""
    version: str | None = None
    state: str | None = None
    batches_total: int | None = None
    lag: int | None = None
    """Lag of all partitions that it may read; None while the brokers' offsets are too old."""
    progress: int | None = None
    """Increases with each batch, and during a long one whenever stored offsets move."""
    main_thread_age_seconds: float | None = None
    """Seconds since the last turn of its main thread; None if not measured."""
    waiting_for: WaitingFor | None = None
