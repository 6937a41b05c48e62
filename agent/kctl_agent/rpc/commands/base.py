"""A command: its name, its pure answer function, and what `describe` shows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kctl_agent.replies.describe import Param
from kctl_agent.rpc.messages import wire_method
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject

Answer: TypeAlias = Callable[[Snapshot, JsonObject, float], JsonObject]
"""(snapshot, checked params, now by `time.monotonic()`) -> result. Runs on the agent's thread and must not wait."""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """A method of an agent. `changes`: it is an operation."""

    name: str
    answer: Answer
    summary: str
    params: tuple[Param, ...] = ()
    changes: bool = False
    deadline_ms: int = 2000
    needs_snapshot: bool = True

    @property
    def method(self) -> str:
        return wire_method(self.name)
