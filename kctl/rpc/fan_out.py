"""The same question to all agents at once, under one deadline. Who does not answer is named, never silently absent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kctl.reduce.base import Answer
from kctl.rpc.connection import Connection, connect
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable, WireError
from kctl_agent.messages import Reply, Request, Role, wire_method
from kctl_agent.wire import MAX_REQUEST_BYTES, JsonObject, encode

__all__ = ["AgentPool", "Failed", "FanOut", "fan_out"]


@dataclass(frozen=True, slots=True)
class Failed:
    """An agent that gave no answer; `code` is `timeout`, `unreachable`, a wire error's, or the one it answered with."""

    sender: str
    code: str
    message: str

    def to_json(self) -> JsonObject:
        return {"from": self.sender, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class FanOut:
    """Every agent that was asked is in exactly one of the two, each sorted by name."""

    answers: list[Answer]
    failed: list[Failed]


class AgentPool:
    """Connections to agents, kept between questions. Belongs to one running loop; `close` it there."""

    def __init__(self) -> None:
        self._connections: dict[Path, Connection] = {}
        self._ids = itertools.count(1)

    def next_id(self) -> str:
        """An id that no other request over these connections has."""
        return f"{next(self._ids):x}"

    async def ask(self, path: Path, frame: bytes, request_id: str, deadline: float) -> Reply:
        """One agent's reply to an encoded request; an error reply too is returned.

        If a kept connection turns out to be dead, because its agent was started anew, the question is asked once more
        on a fresh one; so only ask what may be asked twice. `deadline` bounds the connecting, the caller the waiting.

        Raises:
            AgentUnreachable, AgentTimeout, WireError.
        """
        kept = self._connections.get(path)
        if kept is not None and kept.is_usable:
            try:
                return await kept.send(frame, request_id)
            except (AgentUnreachable, WireError):
                if kept.is_usable:
                    raise
        connection = await self._connected(path, deadline)
        return await connection.send(frame, request_id)

    def close(self) -> None:
        """Close every connection; the loop finishes that in its next round."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connected(self, path: Path, deadline: float) -> Connection:
        connection = await connect(path, deadline)
        other = self._connections.get(path)
        if other is not None and other.is_usable:  # another question connected in the meantime
            connection.close()
            return other
        self._connections[path] = connection
        return connection


async def fan_out(
    pool: AgentPool, targets: Mapping[str, Path], rpc: str, params: JsonObject | None = None, *, deadline: float
) -> FanOut:
    """Ask every agent of `targets` (name -> socket) and return when all have answered or failed, or at `deadline`,
    an absolute time of the running loop. Never raises for an agent's sake.

    Raises:
        FrameTooLarge: the parameters do not fit into a request.
    """
    remaining = deadline - asyncio.get_running_loop().time()
    request = Request(
        id=pool.next_id(),
        role=Role.MASTER,
        rpc=rpc,
        method=wire_method(rpc),
        params=params or {},
        deadline_ms=max(int(remaining * 1000), 1),
    )
    frame = encode(request.to_json(), MAX_REQUEST_BYTES)  # once for all: the id need only be unique on each connection
    names = sorted(targets)
    tasks = [asyncio.ensure_future(pool.ask(targets[name], frame, request.id or "", deadline)) for name in names]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=max(remaining, 0))
    finally:
        for task in tasks:
            task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    sorted_out = [_sorted_out(name, outcome) for name, outcome in zip(names, outcomes, strict=True)]
    return FanOut(
        answers=[one for one in sorted_out if isinstance(one, Answer)],
        failed=[one for one in sorted_out if isinstance(one, Failed)],
    )


def _sorted_out(name: str, outcome: Reply | BaseException) -> Answer | Failed:
    if isinstance(outcome, asyncio.CancelledError):
        return Failed(name, AgentTimeout.code, "no answer in time")
    if isinstance(outcome, AgentError):
        return Failed(name, outcome.code, str(outcome))
    if isinstance(outcome, BaseException):
        raise outcome
    if outcome.error is not None:
        return Failed(name, outcome.error.code, outcome.error.message)
    return Answer(name, outcome.result or {}, outcome.age_seconds or 0.0)
