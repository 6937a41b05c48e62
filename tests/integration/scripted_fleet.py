"""A master's operations on real idle processes with scripted agents."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kctl.config.load import load
from kctl.master.health import HealthRules
from kctl.master.members import Agents, Members
from kctl.master.operations.context import Context
from kctl.master.operations.operation_log import OperationLog
from kctl.master.pauses import Pauses
from kctl.master.process_supervisor import Launch, ProcessSupervisor, SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.master.supervisor import Supervisor
from kctl.operations import operations
from kctl.rpc.fan_out import AgentPool
from kctl_agent.paths import socket_path
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject
from tests.servers.scripted_agent import Answers, ScriptedAgent

NAMES = ("worker-0", "worker-1", "worker-2", "sinker-0")
TOML = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
group = "g"
topics = ["orders", "payments"]
[workers]
engine = "own"
count = 3
[sinkers]
count = 1
handler = "x:y"
"""


class Fleet:
    def __init__(self, folder: Path, toml: str = TOML, names: Sequence[str] = NAMES) -> None:
        self.names = names
        (folder / "kctl.toml").write_text(toml)
        self.config = load(folder / "kctl.toml", {})
        self.reported: dict[str, list[JsonObject]] = {name: [] for name in names}
        self.ends: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        run_dir = self.config.fleet.run_dir
        self.config.fleet.data_dir.mkdir()
        self.pool = AgentPool()
        policy = SupervisionPolicy(RestartPolicy(0.01, 0.02, 0.0), HealthRules(60.0), 0.5, 60.0)
        self.pauses = Pauses(self.config.fleet.data_dir / "pauses.json")
        agents = Agents(run_dir, self.pool)
        launches = [self.launch(name, ["cat"]) for name in names]
        self.supervisor = Supervisor(
            launches, dict.fromkeys(("worker", "sinker", "engine"), policy), agents.ping, self.at_start
        )
        members = Members(run_dir, self.supervisor.kinds, self.supervisor.status, self.pool)
        self.context = Context(
            self.config,
            self.supervisor,
            agents,
            members,
            self.pauses,
            [],
            ["cat"],
            lambda: load(folder / "kctl.toml", {}),
        )
        self.operations = OperationLog(operations(), self.context, folder / "operations.jsonl")
        self.operations.listeners.append(
            lambda operation: self.ends[operation.id].set() if operation.ended_at else None
        )

    def launch(self, name: str, command: Sequence[str]) -> Launch:
        socket = socket_path(self.config.fleet.run_dir, name)
        log = self.config.path.with_name(f"{name}.log")
        return Launch(name, command, {}, log, socket, 10.0, 5.0, name.partition("-")[0])

    def at_start(self, name: str) -> JsonObject:
        self.reported[name] = self.pauses.scopes(name)
        return {"paused": self.reported[name]}

    def script(self, name: str) -> dict[str, Any]:
        def paused(request: Request) -> JsonObject:
            self.reported[name] = request.params["scopes"]
            return {"accepted": True}

        return {
            "ping": Answers(lambda _: {"name": name, "pid": self.supervisor.process(name).pid, "version": "0"}),
            "pause": Answers(paused),
            "operation": Answers({"state": "done", "text": "a reason", "result": {}}),
            "log_level": Answers({"before": "INFO", "level": "DEBUG"}),
            "stack_dump": Answers({"threads": []}),
            "offset_checker": Answers({"rows": []}),
        }


@asynccontextmanager
async def running(folder: Path, *given: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(folder, *given)
    with ExitStack() as stack:
        commands = stack.enter_context(pytest.MonkeyPatch.context())
        commands.setattr("kctl.master.launch.SINKER_COMMAND", ["cat"])
        commands.setattr("kctl.master.launch.ENGINE_COMMAND", ["cat"])
        for name in fleet.names:
            stack.enter_context(ScriptedAgent(fleet.config.fleet.run_dir, name, fleet.script(name)))
        task = asyncio.create_task(fleet.supervisor.run())
        try:
            async with asyncio.timeout(60):
                for process in map(fleet.supervisor.process, fleet.names):
                    await is_running(process)
            yield fleet
        finally:
            await fleet.operations.close()
            await fleet.supervisor.stop()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            fleet.pool.close()


async def is_running(process: ProcessSupervisor) -> None:
    await process.until(lambda: process.state == "running")
