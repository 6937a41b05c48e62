from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Raw

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


def targets(run_dir: Path, *names: str) -> dict[str, Path]:
    return {name: run_dir / f"{name}.sock" for name in names}


def asked(sockets: Mapping[str, Path], seconds: float = 5.0, rpc: str = "kafka_lag") -> FanOut[JsonObject]:
    async def ask(pool: AgentPool) -> FanOut[Raw]:
        return await fan_out(pool, sockets, rpc, deadline=asyncio.get_running_loop().time() + seconds)

    return with_pool(ask)


def with_pool(use: Callable[[AgentPool], Awaitable[FanOut[Raw]]]) -> FanOut[JsonObject]:
    async def run() -> FanOut[JsonObject]:
        pool = AgentPool()
        try:
            return plain(await use(pool))
        finally:
            pool.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


def agents(stack: contextlib.ExitStack, run_dir: Path, script: Mapping[str, Step]) -> list[ScriptedAgent]:
    return [
        stack.enter_context(ScriptedAgent(run_dir, name, {"kafka_lag": step, "workers": Answers()}))
        for name, step in script.items()
    ]


def test_an_agent_that_fails_is_named_with_the_reason_and_the_others_have_answered(short_dir: Path) -> None:
    with contextlib.ExitStack() as stack:
        agents(
            stack,
            short_dir,
            {
                "breaks": BreaksFrame({"n": 1}),
                "garbles": SendsBytes(b"\x00\x00\x00\x02[]"),
                "good": Answers({"n": 1}),
                "refuses": Refuses(NotReady("not yet")),
                "stalls": Stalls(),
                "vanishes": Vanishes(),
            },
        )
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(short_dir / "deaf.sock"))

        names = ("absent", "breaks", "deaf", "garbles", "good", "refuses", "stalls", "vanishes")
        outcome = asked(targets(short_dir, *names), seconds=0.5)

    assert [answer.sender for answer in outcome.answers] == ["good"]
    assert {failed.sender: failed.code for failed in outcome.failed} == {
        "absent": "unreachable",
        "breaks": "broken_frame",
        "deaf": "unreachable",
        "garbles": "bad_payload",
        "refuses": "not_ready",
        "stalls": "timeout",
        "vanishes": "unreachable",
    }
    assert outcome.failed[0] == Failed("absent", "unreachable", "there is no socket")


@pytest.mark.shows("all agents are asked under one deadline; missing ones are named")
@pytest.mark.alone
def test_the_deadline_is_one_for_all_however_many_stall(short_dir: Path) -> None:
    async def timed(pool: AgentPool) -> FanOut[Raw]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await fan_out(pool, targets(short_dir, *names), "kafka_lag", deadline=started + 0.3)
        assert 0.25 < loop.time() - started < 1.0
        return outcome

    names = [f"worker-{number}" for number in range(5)]
    with contextlib.ExitStack() as stack:
        agents(stack, short_dir, dict.fromkeys(names, Stalls()))

        outcome = with_pool(timed)

    assert outcome.failed == [Failed(name, "timeout", "no answer in time") for name in names]


def test_a_deadline_that_has_passed_names_everybody(short_dir: Path) -> None:
    with contextlib.ExitStack() as stack:
        agents(stack, short_dir, {"a": Answers()})

        assert [failed.code for failed in asked(targets(short_dir, "a"), seconds=-1).failed] == ["timeout"]


def test_a_full_backlog_is_a_timeout_of_that_agent_alone(short_dir: Path) -> None:
    with contextlib.ExitStack() as stack:
        agents(stack, short_dir, {"good": Answers()})
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(short_dir / "full.sock"))
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(short_dir / "full.sock"))

        outcome = asked(targets(short_dir, "full", "good"), seconds=0.2)

    assert [(failed.sender, failed.code) for failed in outcome.failed] == [("full", "timeout")]
    assert [answer.sender for answer in outcome.answers] == ["good"]


def test_a_kept_connection_to_a_restarted_agent_is_replaced_without_a_failure(short_dir: Path) -> None:
    async def across_a_restart(pool: AgentPool) -> FanOut[Raw]:
        loop = asyncio.get_running_loop()
        with ScriptedAgent(short_dir, "a", {"kafka_lag": Answers({"life": 1})}):
            await fan_out(pool, targets(short_dir, "a"), "kafka_lag", deadline=loop.time() + 5)
        with ScriptedAgent(short_dir, "a", {"kafka_lag": Answers({"life": 2})}):
            return await fan_out(pool, targets(short_dir, "a"), "kafka_lag", deadline=loop.time() + 5)

    assert with_pool(across_a_restart).answers == [Answer("a", {"life": 2}, 0.0)]


def test_a_connection_that_breaks_while_it_is_asked_is_tried_once_more(short_dir: Path) -> None:
    async def through_a_break(pool: AgentPool) -> FanOut[Raw]:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            outcome = await fan_out(pool, targets(short_dir, "a"), "kafka_lag", deadline=loop.time() + 5)
        return outcome

    script: Mapping[str, Sequence[Step]] = {"kafka_lag": [Answers({"n": 1}), BreaksFrame({"n": 2}), Answers({"n": 3})]}
    with ScriptedAgent(short_dir, "a", script) as agent:
        outcome = with_pool(through_a_break)

    assert outcome == FanOut([Answer("a", {"n": 3}, 0.0)], [])
    assert len(agent.requests) == 3


def test_a_reply_that_comes_after_its_deadline_does_not_answer_the_next_question(short_dir: Path) -> None:
    released = threading.Event()

    async def late(pool: AgentPool) -> FanOut[Raw]:
        loop = asyncio.get_running_loop()
        first = await fan_out(pool, targets(short_dir, "a"), "kafka_lag", deadline=loop.time() + 0.1)
        assert [failed.code for failed in first.failed] == ["timeout"]
        released.set()
        return await fan_out(pool, targets(short_dir, "a"), "workers", deadline=loop.time() + 5)

    script: Mapping[str, Step] = {
        "kafka_lag": Stalls(until=released, then=Answers({"late": True})),
        "workers": Answers({"late": False}),
    }
    with ScriptedAgent(short_dir, "a", script):
        assert with_pool(late).answers == [Answer("a", {"late": False}, 0.0)]


def test_questions_at_the_same_time_share_an_agent_and_get_their_own_answers(short_dir: Path) -> None:
    async def both(pool: AgentPool) -> FanOut[Raw]:
        deadline = asyncio.get_running_loop().time() + 5
        sockets = targets(short_dir, "a")
        one, other = await asyncio.gather(
            fan_out(pool, sockets, "kafka_lag", deadline=deadline), fan_out(pool, sockets, "workers", deadline=deadline)
        )
        return FanOut(one.answers + other.answers, one.failed + other.failed)

    script = {"kafka_lag": Answers({"rpc": "kafka_lag"}), "workers": Answers({"rpc": "workers"})}
    with ScriptedAgent(short_dir, "a", script):
        outcome = with_pool(both)

    assert [answer.result["rpc"] for answer in outcome.answers] == ["kafka_lag", "workers"]
