"""A master's operations on real idle processes with scripted agents: random ones of several callers at once, and which
processes `restart` and `scale` start and stop.
"""

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
from kctl.master.health import HealthRules
from kctl.master.members import Agents, Members
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

NAMES = ("worker-0", "worker-1", "worker-2", "sinker-0")
KAFKA = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
group = "g"
topics = ["orders", "payments"]
"""
TOML = f"""{KAFKA}[workers]
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


TOPICS = ("orders", "payments")
CALLERS = 4


def some_operation(chance: random.Random) -> tuple[str, JsonObject]:
    name, topic = chance.choice(NAMES), chance.choice(TOPICS)
    scope: JsonObject = chance.choice(
        [{"worker": name}, {"topic": topic}, {"topic": topic, "partition": 1}, {"all": True}]
    )
    choices: list[tuple[str, JsonObject]] = [
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
    return chance.choice(choices)


async def one_caller(fleet: Fleet, chance: random.Random, rounds: int, ended: list[Operation]) -> int:
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


MANY = [pytest.param(seed, 10_000, marks=pytest.mark.long) for seed in (2, 3, 4)]


@pytest.mark.shows("1,000 rounds of random operations of several callers are answered and end as desired")
@pytest.mark.parametrize(("seed", "rounds"), [(1, 1000), *MANY])
async def test_random_operations_are_all_answered_and_take_effect(short_dir: Path, seed: int, rounds: int) -> None:
    ended: list[Operation] = []
    async with running(short_dir) as fleet:
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
            last = [operation for operation in in_order if name in operation.touches][-5:]
            await eventually_so(fleet, name, last_wish(name, in_order), last)
        lines = (short_dir / "operations.jsonl").read_text().splitlines()
        assert len(lines) == 2 * len(ended), "each left its audit lines"
        assert [pause.key for pause in Pauses(short_dir / "data" / "pauses.json").all()] == [
            pause.key for pause in fleet.pauses.all()
        ]


async def eventually_so(fleet: Fleet, name: str, wanted: str, last: list[Operation]) -> None:
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
    """The state of a process that completed operations, which never overlapped, want last."""
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


WITH_ENGINE = ("engine", "worker-0", "worker-1", "worker-2")
ENGINE_TOML = f"""{KAFKA}[workers]
count = 3
[spark]
driver_memory = "1g"
"""


async def ended(fleet: Fleet, kind: str, **params: object) -> Operation:
    operation = await fleet.operations.submit(kind, params, Caller(os.getuid()), 30.0)
    await fleet.ends[operation.id].wait()
    done = fleet.operations.find(operation.id)
    assert done.state == "done", done
    return done


def pids(fleet: Fleet) -> dict[str, int | None]:
    return {name: fleet.supervisor.process(name).pid for name in fleet.supervisor.names}


async def test_a_restart_of_all_begins_the_fatal_ones_and_leaves_an_unchanged_engine(short_dir: Path) -> None:
    async with running(short_dir, ENGINE_TOML, WITH_ENGINE) as fleet:
        await ended(fleet, "reload")
        await ended(fleet, "restart", name="engine")
        before = pids(fleet)
        broken = fleet.supervisor.process("worker-2")
        launch, broken.launch = broken.launch, fleet.launch("worker-2", ["sh", "-c", "exit 78"])
        broken.restart()
        await broken.until(lambda: broken.state == "fatal")
        broken.launch = launch

        planned = await ended(fleet, "restart", all=True, rolling=True, dry_run=True)
        done = await ended(fleet, "restart", all=True, rolling=True)

        assert planned.result == {"restarted": ["worker-2", "worker-0", "worker-1"], "engine": False}
        assert done.text == "restarted: worker-0, worker-1, worker-2"
        after = pids(fleet)
        assert after["engine"] == before["engine"]
        assert all(after[name] not in (None, before[name]) for name in WITH_ENGINE[1:])

        (short_dir / "kctl.toml").write_text(ENGINE_TOML.replace("1g", "2g"))
        reloaded = await ended(fleet, "reload")
        (short_dir / "kctl.toml").write_text(f"{ENGINE_TOML.replace('1g', '2g')}[sinkers]\nmax_tries = 2\n")
        of_sinkers = await ended(fleet, "reload")
        restarted = await ended(fleet, "restart", all=True, rolling=True)

        assert of_sinkers.text.startswith("after the next start of a process: sinkers.max_tries ")
        sentence = "the engine restarts first: no worker reads for about 5 s"
        assert reloaded.text.startswith(f"after `kctl restart engine --rolling` ({sentence}): spark.driver_memory ")
        assert restarted.text == "restarted: engine, worker-0, worker-1, worker-2"
        assert pids(fleet)["engine"] != before["engine"]


async def test_scaling_takes_away_first_what_was_drained_and_reports_what_runs(short_dir: Path) -> None:
    async with running(short_dir, ENGINE_TOML, WITH_ENGINE) as fleet:
        before = pids(fleet)
        await ended(fleet, "drain", name="worker-1")

        down = await ended(fleet, "scale", workers=2)

        assert down.result == {"started": [], "stopped": ["worker-1"], "running": ["worker-0", "worker-2"]}
        assert down.text.startswith("2 workers until")
        assert pids(fleet) == {name: before[name] for name in ("engine", "worker-0", "worker-2")}
        (short_dir / "kctl.toml").write_text(ENGINE_TOML.replace("count = 3", "count = 2\ntrigger_seconds = 7"))
        await ended(fleet, "reload")
        settings = [fleet.supervisor.process(name).launch.settings for name in ("worker-0", "worker-2")]
        assert [each["pipeline"]["trigger_seconds"] for each in settings] == [7, 7], "whatever their numbers are"  # type: ignore[index]

        await ended(fleet, "stop", name="worker-0")
        up = await ended(fleet, "scale", workers=3)

        assert up.result == {
            "started": ["worker-0", "worker-1"],
            "stopped": [],
            "running": ["worker-0", "worker-1", "worker-2"],
        }
        await is_running(fleet.supervisor.process("worker-1"))
