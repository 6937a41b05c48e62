"""Random operations from several callers at once: every one is answered, and the fleet ends up as requested.

The processes are real and do nothing; their agents are scripted and take every operation.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kctl.config.load import load
from kctl.errors import OperationRefused
from kctl.master.agents import Agents
from kctl.master.health import HealthRules
from kctl.master.members import Members
from kctl.master.operations.base import Caller, Operation
from kctl.master.operations.context import Context
from kctl.master.operations.operation_log import OperationLog
from kctl.master.pauses import Pauses
from kctl.master.process_supervisor import Launch, ProcessSupervisor, SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.master.supervisor import Supervisor
from kctl.operations import operations
from kctl.rpc.fan_out import AgentPool
from kctl_agent.errors import BadParams, UnknownMethod
from kctl_agent.paths import socket_path
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject
from tests.servers.scripted_agent import Answers, ScriptedAgent

pytestmark = pytest.mark.anyio


NAMES = ("worker-0", "worker-1", "worker-2", "sinker-0")
TOPICS = ("orders", "payments")
CALLERS = 4
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
    """What a master's operations are carried out on."""

    def __init__(self, folder: Path, toml: str = TOML, names: Sequence[str] = NAMES) -> None:
        self.names = names
        (folder / "kctl.toml").write_text(toml)
        self.config = load(folder / "kctl.toml", {})
        self.reported: dict[str, list[JsonObject]] = {name: [] for name in names}
        """The scopes that each agent got last."""
        self.ends: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Of each operation, by its id."""
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


@pytest.fixture(autouse=True)
def sinkers_and_engines_do_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.master.launch.SINKER_COMMAND", ["cat"])
    monkeypatch.setattr("kctl.master.launch.ENGINE_COMMAND", ["cat"])


@asynccontextmanager
async def running(folder: Path, *given: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(folder, *given)
    with ExitStack() as stack:
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


def some_operation(chance: random.Random) -> tuple[str, JsonObject]:
    name, topic = chance.choice(NAMES), chance.choice(TOPICS)
    scope: JsonObject = chance.choice(
        [{"worker": name}, {"topic": topic}, {"topic": topic, "partition": 1}, {"all": True}]
    )
    operations: list[tuple[str, JsonObject]] = [
        ("pause", scope),
        ("resume", scope),
        ("resume", {"all": True}),
        ("stop", {"name": name}),
        ("start", {"name": name}),
        ("restart", {"name": name}),
        ("restart", {"all": True, "rolling": chance.random() < 0.5}),
        ("drain", {"name": name}),
        ("log_level", {"name": name, "level": "DEBUG"}),
        ("stack", {"name": name}),
        ("reload", {}),
        ("seek", {"topic": topic, "to": "earliest"}),
        ("nonsense", {}),
        ("stop", {"nobody": 1}),
    ]
    return chance.choice(operations)


async def one_caller(fleet: Fleet, chance: random.Random, rounds: int, ended: list[Operation]) -> int:
    """How many of its operations were refused."""
    refused = 0
    for _ in range(rounds):
        kind, params = some_operation(chance)
        try:
            async with asyncio.timeout(60):
                operation = await fleet.operations.submit(kind, params, Caller(os.getuid()), 30.0)
                await fleet.ends[operation.id].wait()
                operation = fleet.operations.find(operation.id)
        except (OperationRefused, UnknownMethod, BadParams):
            refused += 1
        else:
            ended.append(operation)
    return refused


async def random_orders(folder: Path, seed: int, rounds: int) -> None:
    ended: list[Operation] = []
    async with running(folder) as fleet:
        chances = [random.Random(f"{seed}-{number}") for number in range(CALLERS)]
        shares = [len(range(number, rounds, CALLERS)) for number in range(CALLERS)]
        refused = await asyncio.gather(
            *(one_caller(fleet, chance, share, ended) for chance, share in zip(chances, shares, strict=True))
        )

        assert len(ended) + sum(refused) == rounds, "every operation was answered"
        for operation in ended:
            assert operation.state == "done" or operation.text, operation
            assert "a defect" not in operation.text, operation
        in_order = sorted(ended, key=lambda operation: operation.ended_at or 0)
        for name in NAMES:
            wanted = last_wish(name, in_order)
            await eventually_so(
                fleet, name, wanted, [operation for operation in in_order if name in operation.touches][-5:]
            )
        lines = (folder / "operations.jsonl").read_text().splitlines()
        assert len(lines) == 2 * len(ended), "each left its audit lines"
        assert [pause.key for pause in Pauses(folder / "data" / "pauses.json").all()] == [
            pause.key for pause in fleet.pauses.all()
        ]


async def eventually_so(fleet: Fleet, name: str, wanted: str, last: list[Operation]) -> None:
    """The process is in that state and, if it runs, got what is paused."""

    def is_so() -> bool:
        state = fleet.supervisor.process(name).state
        return state == wanted and (wanted == "stopped" or fleet.reported[name] == fleet.pauses.scopes(name))

    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    reported = [(operation.words, operation.state, operation.text) for operation in last]
    raise AssertionError(f"{name} should be {wanted}: {fleet.supervisor.process(name).status()}; {reported}")


def last_wish(name: str, ended: list[Operation]) -> str:
    """What the operations that were carried out want of a process; they never overlapped."""
    state = "running"
    for operation in ended:
        if operation.state != "done":
            continue
        if operation.name in ("stop", "drain") and operation.params["name"] == name:
            state = "stopped"
        elif (operation.name in ("start", "restart") and operation.params.get("name") == name) or (
            operation.name == "restart" and name in operation.result.get("restarted", ())
        ):
            state = "running"
    return state


@pytest.mark.shows("1,000 rounds of random operations from several callers: each answered, the end as desired")
async def test_a_thousand_random_operations_are_all_answered_and_take_effect(short_dir: Path) -> None:
    await random_orders(short_dir, seed=1, rounds=1000)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4])
async def test_ten_thousand_random_operations(short_dir: Path, seed: int) -> None:
    await random_orders(short_dir, seed, rounds=10_000)
