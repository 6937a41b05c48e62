"""`ping`: the proof that an agent is there. A connect that succeeds proves nothing; this answer does."""

from __future__ import annotations

import os

from kctl_agent import __version__
from kctl_agent.commands.base import Command
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["PING", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """Who answers: name, pid, version."""
    return {"name": snapshot.name, "pid": os.getpid(), "version": __version__}


PING = Command("ping", answer, "who answers: name, pid, version", deadline_ms=1000, needs_snapshot=False)
