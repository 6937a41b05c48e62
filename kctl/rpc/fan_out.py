"""Asks all agents the same question at once, under one deadline, and names each agent that does not answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Raw, Struct

from kctl.reduce.base import Answer
from kctl.rpc.client import Reply
from kctl.rpc.connection import AgentConnection, connect
from kctl.rpc.decode import BadResult, decoded
from kctl_agent.errors import AgentError, AgentTimeout
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, JsonObject, encode

R = TypeVar("R")


class Failed(Struct, frozen=True, rename={"sender": "from"}):
    """An agent without an answer. `code` is `timeout`, `unreachable`, a wire error's, or the agent's own."""

    sender: str
    code: str
    message: str

    def to_json(self) -> JsonObject:
        return {"from": self.sender, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class FanOut(Generic[R]):
    """All agents' answers. Every agent is in exactly one of the three fields, sorted by name."""

    answers: list[Answer[R]]
    failed: list[Failed]
    stopped: tuple[str, ...] = ()
    """Agents that were stopped by request; only `kctl.master.members` knows them."""


def typed(outcome: FanOut[Raw], kind: type[R]) -> FanOut[R]:
    """Decodes results; one that does not fit fails with `bad_result`. Pure, for any thread; slow with thousands of
    partitions."""
    answers: list[Answer[R]] = []
    failed: list[Failed] = []
    for answer in outcome.answers:
        try:
            answers.append(answer.of(decoded(kind, answer.result)))
        except BadResult as error:
            why = f"its reply does not have the shape of this command: {error}"
            failed.append(Failed(answer.sender, error.code, why))
    if failed:
        failed = sorted([*outcome.failed, *failed], key=lambda each: each.sender)
    return FanOut(answers, failed or outcome.failed, outcome.stopped)


class AgentPool:
    """Kept connections to agents. Belongs to one running loop; `close` it there."""

    def __init__(self) -> None:
        self._connections: dict[Path, AgentConnection] = {}
        self.ids = itertools.count(1)

    def kept(self, path: Path) -> AgentConnection | None:
        connection = self._connections.get(path)
        return connection if connection is not None and connection.is_usable else None

    async def ask(self, path: Path, frame: bytes, request_id: str, deadline: float) -> Reply:
        """Connects if no connection is kept; `deadline` limits only that. Raises AgentUnreachable, AgentTimeout,
        WireError."""
        connection = self.kept(path) or await self._connected(path, deadline)
        return await connection.send(frame, request_id)

    def close(self) -> None:
        """The loop finishes closing in its next round."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connected(self, path: Path, deadline: float) -> AgentConnection:
        connection = await connect(path, deadline)
        other = self.kept(path)
        if other is not None:  # another question has connected
            connection.close()
            return other
        self._connections[path] = connection
        return connection


async def fan_out(
    pool: AgentPool, targets: Mapping[str, Path], rpc: str, params: JsonObject | None = None, *, deadline: float
) -> FanOut[Raw]:
    """Asks every agent in `targets` (name -> socket) until `deadline`, a time of the running loop. After a dead
    connection it asks again, so ask only what may be asked twice. Raises FrameTooLarge if the parameters do not fit."""
    loop = asyncio.get_running_loop()
    remaining = deadline - loop.time()
    request_id = f"{next(pool.ids):x}"  # one for all, because it must be unique only on each connection
    frame = _encoded(request_id, rpc, params or {}, remaining)
    waiting, kept = _sent(pool, targets, frame, request_id, deadline)
    outcomes: dict[str, Answer[Raw] | Failed] = {
        name: Failed(name, AgentTimeout.code, "no answer in time") for name in targets
    }
    try:
        while waiting and remaining > 0:
            done, _ = await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_EXCEPTION)
            for reply in done:
                name = waiting.pop(reply)
                connection = kept.pop(name, None)
                if reply.exception() is not None and connection is not None and not connection.is_usable:
                    anew = pool.ask(targets[name], frame, request_id, deadline)
                    waiting[asyncio.ensure_future(anew)] = name
                else:
                    outcomes[name] = _sorted_out(name, reply)
            remaining = deadline - loop.time()
    finally:
        for reply in waiting:
            reply.cancel()
    in_order = [outcome for _, outcome in sorted(outcomes.items())]
    return FanOut(
        answers=[outcome for outcome in in_order if isinstance(outcome, Answer)],
        failed=[outcome for outcome in in_order if isinstance(outcome, Failed)],
    )


def _sent(
    pool: AgentPool, targets: Mapping[str, Path], frame: bytes, request_id: str, deadline: float
) -> tuple[dict[asyncio.Future[Reply], str], dict[str, AgentConnection]]:
    waiting: dict[asyncio.Future[Reply], str] = {}
    kept: dict[str, AgentConnection] = {}
    for name, path in targets.items():
        connection = pool.kept(path)
        if connection is not None:  # nearly always, and a task for each would cost more than the question
            kept[name] = connection
            waiting[connection.send(frame, request_id)] = name
        else:
            waiting[asyncio.ensure_future(pool.ask(path, frame, request_id, deadline))] = name
    return waiting, kept


def _encoded(request_id: str, rpc: str, params: JsonObject, seconds: float) -> bytes:
    request = Request(
        id=request_id,
        role=Role.MASTER,
        rpc=rpc,
        method=wire_method(rpc),
        params=params,
        deadline_ms=max(int(seconds * 1000), 1),
    )
    return encode(request.to_json(), MAX_REQUEST_BYTES)


def _sorted_out(name: str, reply: asyncio.Future[Reply]) -> Answer[Raw] | Failed:
    error = reply.exception()
    if isinstance(error, AgentError):
        return Failed(name, error.code, str(error))
    received = reply.result()
    if received.error is not None:
        return Failed(name, received.error.code, received.error.message)
    return Answer(name, received.raw, received.age_seconds or 0.0)
