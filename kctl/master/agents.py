"""Requests to single agents of the fleet: pings and operations."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kctl.errors import AgentRefused, OperationUnknown
from kctl.rpc.fan_out import AgentPool, fan_out, typed
from kctl_agent.errors import AgentTimeout
from kctl_agent.paths import socket_path
from kctl_agent.replies.ping import PingReply
from kctl_agent.rpc.wire import JsonObject, parse_object


class Agents:
    def __init__(self, run_dir: Path, pool: AgentPool) -> None:
        self._run_dir = run_dir
        self._pool = pool

    async def ping(self, name: str, timeout_seconds: float) -> PingReply | None:
        """Returns None if the agent does not answer in time."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        outcome = await fan_out(self._pool, {name: socket_path(self._run_dir, name)}, "ping", {}, deadline=deadline)
        pings = typed(outcome, PingReply).answers
        return pings[0].result if pings else None

    async def operate(self, name: str, rpc: str, params: JsonObject, timeout_seconds: float) -> JsonObject:
        """Returns the agent's answer. Raises AgentRefused if the agent rejects the operation or does not exist,
        OperationUnknown if it does not answer in time."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        path = socket_path(self._run_dir, name)
        outcome = await fan_out(self._pool, {name: path}, rpc, params, deadline=deadline)
        for failed in outcome.failed:
            error = OperationUnknown if failed.code == AgentTimeout.code else AgentRefused
            raise error(f"{name}: {failed.message}")
        return parse_object(bytes(outcome.answers[0].result))
