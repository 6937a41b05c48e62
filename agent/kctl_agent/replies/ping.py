"""`ping`: the proof that an agent is there, and what a supervisor judges it by."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.workers import WaitingFor


@dataclass(frozen=True, slots=True)
class PingReply:
    """The reply to `ping`: which process answers, and how it does."""

    pid: int
    name: str = ""
    version: str | None = None
    state: str | None = None
    batches_total: int | None = None
    lag: int | None = None
    """Messages of all partitions that it may read; None while the brokers' offsets are too old to rely on."""
    progress: int | None = None
    """Rises with each batch and, while one runs for long, whenever stored offsets have moved."""
    main_thread_age_seconds: float | None = None
    """Seconds since the last turn of its main thread; None where nobody measures it."""
    waiting_for: WaitingFor | None = None
