from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from kctl.reduce.base import Answer
from kctl.rpc.fan_out import AgentPool, Failed, FanOut, fan_out
from kctl_agent.errors import NotReady
from kctl_agent.rpc.wire import JsonObject
from tests.replies import plain
from tests.servers.scripted_agent import (
    Answers,
    BreaksFrame,
    Refuses,
    ScriptedAgent,
    SendsBytes,
    Stalls,
    Step,
    Vanishes,
)


class Fleet:
    """Scripted agents in one folder, and the pool through which they are asked."""

    def __init__(self, run_dir: Path, stack: ExitStack) -> None:
        self.run_dir, self.stack, self.pool = run_dir, stack, AgentPool()

    def agent(self, name: str, kafka_lag: Step | Sequence[Step]) -> ScriptedAgent:
        script = {"kafka_lag": kafka_lag, "workers": Answers({"rpc": "workers"})}
        return self.stack.enter_context(ScriptedAgent(self.run_dir, name, script))

    def listener(self, name: str) -> socket.socket:
        listener = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(self.run_dir / f"{name}.sock"))
        return listener

    async def ask(self, *names: str, rpc: str = "kafka_lag", seconds: float = 5.0) -> FanOut[JsonObject]:
        sockets = {name: self.run_dir / f"{name}.sock" for name in names}
        deadline = asyncio.get_running_loop().time() + seconds
        return plain(await fan_out(self.pool, sockets, rpc, deadline=deadline))


@pytest.fixture
async def fleet(short_dir: Path) -> AsyncIterator[Fleet]:
    with ExitStack() as stack:
        fleet = Fleet(short_dir, stack)
        yield fleet
        fleet.pool.close()
        await asyncio.sleep(0)


async def test_an_agent_that_fails_is_named_with_the_reason_and_the_others_have_answered(fleet: Fleet) -> None:
    fleet.agent("breaks", BreaksFrame({"n": 1}))
    fleet.agent("garbles", SendsBytes(b"\x00\x00\x00\x02[]"))
    fleet.agent("good", Answers({"n": 1}))
    fleet.agent("refuses", Refuses(NotReady("not yet")))
    fleet.agent("stalls", Stalls())
    fleet.agent("vanishes", Vanishes())
    fleet.listener("deaf")
    fleet.listener("full").listen(0)
    fleet.stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(fleet.run_dir / "full.sock"))
    names = ("absent", "breaks", "deaf", "full", "garbles", "good", "refuses", "stalls", "vanishes")

    outcome = await fleet.ask(*names, seconds=0.5)

    assert [answer.sender for answer in outcome.answers] == ["good"]
    assert {failed.sender: failed.code for failed in outcome.failed} == {
        "absent": "unreachable",
        "breaks": "broken_frame",
        "deaf": "unreachable",
        "full": "timeout",
        "garbles": "bad_payload",
        "refuses": "not_ready",
        "stalls": "timeout",
        "vanishes": "unreachable",
    }
    assert outcome.failed[0] == Failed("absent", "unreachable", "there is no socket")


@pytest.mark.shows("all agents are asked under one deadline; missing ones are named")
@pytest.mark.alone
async def test_the_deadline_is_one_for_all_however_many_stall(fleet: Fleet) -> None:
    names = [f"worker-{number}" for number in range(5)]
    for name in names:
        fleet.agent(name, Stalls())
    clock = asyncio.get_running_loop().time
    started = clock()

    outcome = await fleet.ask(*names, seconds=0.3)

    assert 0.25 < clock() - started < 1.0
    assert outcome.failed == [Failed(name, "timeout", "no answer in time") for name in names]
    assert [failed.code for failed in (await fleet.ask(*names, seconds=-1)).failed] == ["timeout"] * 5


async def test_a_connection_that_was_kept_or_breaks_is_replaced_without_a_failure(fleet: Fleet) -> None:
    first = fleet.agent("a", Answers({"life": 1}))
    await fleet.ask("a")
    first.close()
    fleet.agent("a", Answers({"life": 2}))

    assert (await fleet.ask("a")).answers == [Answer("a", {"life": 2}, 0.0)]

    agent = fleet.agent("b", [Answers({"n": 1}), BreaksFrame({"n": 2}), Answers({"n": 3})])
    await fleet.ask("b")
    assert await fleet.ask("b") == FanOut([Answer("b", {"n": 3}, 0.0)], [])
    assert len(agent.requests) == 3


async def test_each_question_gets_its_own_answer_after_a_late_one_and_at_the_same_time(fleet: Fleet) -> None:
    released = threading.Event()
    fleet.agent("a", Stalls(until=released, then=Answers({"rpc": "kafka_lag"})))

    late = await fleet.ask("a", seconds=0.1)
    released.set()
    following = await fleet.ask("a", rpc="workers")

    assert [failed.code for failed in late.failed] == ["timeout"]
    assert following.answers == [Answer("a", {"rpc": "workers"}, 0.0)]

    fleet.agent("b", Answers({"rpc": "kafka_lag"}))
    outcomes = await asyncio.gather(fleet.ask("b"), fleet.ask("b", rpc="workers"))
    assert [answer.result["rpc"] for each in outcomes for answer in each.answers] == ["kafka_lag", "workers"]
