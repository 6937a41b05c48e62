"""Random operations of several callers at once: each is answered, and the fleet ends up as requested."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from kctl.errors import OperationRefused
from kctl.master.operations.base import Caller, Operation
from kctl.master.pauses import Pauses
from kctl_agent.errors import BadParams, UnknownMethod
from kctl_agent.rpc.wire import JsonObject
from tests.integration.scripted_fleet import NAMES, Fleet, running

TOPICS = ("orders", "payments")
CALLERS = 4


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
    """The state that completed operations, which never overlapped, want of a process."""
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


@pytest.mark.shows("1,000 rounds of random operations of several callers are answered and end as desired")
async def test_a_thousand_random_operations_are_all_answered_and_take_effect(short_dir: Path) -> None:
    await random_orders(short_dir, seed=1, rounds=1000)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4])
async def test_ten_thousand_random_operations(short_dir: Path, seed: int) -> None:
    await random_orders(short_dir, seed, rounds=10_000)
