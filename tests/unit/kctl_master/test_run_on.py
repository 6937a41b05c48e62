from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.errors import AgentRefused, OperationUnknown
from kctl.master.members import Agents
from kctl.master.operations import context as module
from kctl.master.operations.base import Report
from kctl.master.operations.context import Context
from kctl.rpc.fan_out import AgentPool
from kctl_agent.rpc.commands import operation_commands
from kctl_agent.rpc.commands.operations import SeekPartition
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.wire import JsonObject
from tests.servers.scripted_agent import Answers, ScriptedAgent, Stalls

SEEK: JsonObject = {"topic": "t", "partition": 0, "to": "7"}


@contextmanager
def agent(run_dir: Path) -> Iterator[Inbox]:
    """A worker that does not take its operations by itself."""
    inbox = Inbox()
    server = AgentServer(run_dir, "worker-0", operation_commands(inbox, SeekPartition))
    server.start()
    try:
        yield inbox
    finally:
        server.close()


class Seek:
    def __init__(self, run_dir: Path, pool: AgentPool, until: float = float("inf")) -> None:
        absent = cast("Any", None)
        self.agents = Agents(run_dir, pool)
        context = Context(absent, absent, self.agents, absent, absent, (), (), absent)
        self.reported = asyncio.Event()
        self.texts: list[str] = []
        report = Report(self._on_report, until)
        self.task = asyncio.ensure_future(context.run_on("worker-0", "seek", SEEK, report))

    def _on_report(self, text: str) -> None:
        self.texts.append(text)
        self.reported.set()

    async def given_up(self) -> JsonObject:
        self.task.cancel()
        return await self.task


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.5)


@pytest.fixture
def pool() -> Iterator[AgentPool]:
    made = AgentPool()
    yield made
    made.close()


async def test_given_up_while_it_waits_it_is_dropped_and_never_begun(short_dir: Path, pool: AgentPool) -> None:
    with agent(short_dir) as inbox:
        seek = Seek(short_dir, pool, until=1e9)
        await seek.reported.wait()
        [operation] = inbox.take()
        assert (operation.until, seek.texts[0]) == (1e9, "worker-0: has not begun yet")

        with pytest.raises(asyncio.CancelledError):
            await seek.given_up()

        assert inbox.begin(operation) == Outcome("failed", "was cancelled")


@pytest.mark.parametrize(
    ("ends", "becomes"),
    [
        (Outcome("done", "moved"), None),
        (Outcome("failed", "no broker answers"), asyncio.CancelledError),
        (Outcome("unknown", "the group is reset"), OperationUnknown),
        (None, OperationUnknown),
    ],
)
async def test_what_has_begun_is_waited_for_and_named_if_its_end_is_not_known(
    short_dir: Path, pool: AgentPool, ends: Outcome | None, becomes: type[BaseException] | None
) -> None:
    def main_thread(operation: AcceptedOperation) -> None:
        if ends is not None:
            inbox.report(operation.id, ends)

    with agent(short_dir) as inbox:
        seek = Seek(short_dir, pool)
        await seek.reported.wait()
        [operation] = inbox.take()
        assert inbox.begin(operation) is None
        threading.Timer(0.1, main_thread, (operation,)).start()

        if becomes is None:
            assert (await seek.given_up())["text"] == "moved"
        else:
            with pytest.raises(becomes):
                await seek.given_up()


@pytest.mark.parametrize(
    "script", [{"seek": Stalls(), "cancel": Stalls()}, {"seek": Answers({}), "operation": Stalls(), "cancel": Stalls()}]
)
async def test_a_silent_agent_is_unknown(short_dir: Path, pool: AgentPool, script: dict[str, Any]) -> None:
    silent = r"^worker-0: no answer in time; what became of it is not known$"
    with ScriptedAgent(short_dir, "worker-0", script), pytest.raises(OperationUnknown, match=silent):
        await Seek(short_dir, pool).task


async def test_what_never_came_to_an_agent_that_answers_again_has_failed(short_dir: Path, pool: AgentPool) -> None:
    with agent(short_dir) as inbox:
        seek = Seek(short_dir, pool)
        operate = seek.agents.operate

        async def lose_the_first(name: str, rpc: str, params: JsonObject, timeout_seconds: float) -> JsonObject:
            if rpc == "seek":
                raise OperationUnknown("worker-0: no answer in time")
            return await operate(name, rpc, params, timeout_seconds)

        seek.agents.operate = lose_the_first  # type: ignore[method-assign]
        with pytest.raises(AgentRefused, match="was never accepted"):
            await seek.task
        assert inbox.take() == []


async def test_an_absent_agent_has_failed_and_a_restarted_one_is_unknown(short_dir: Path, pool: AgentPool) -> None:
    with pytest.raises(AgentRefused, match="there is no socket"):
        await Seek(short_dir, pool).task
    with agent(short_dir):
        seek = Seek(short_dir, pool)
        await seek.reported.wait()
    with agent(short_dir), pytest.raises(OperationUnknown, match=r"was never accepted|is not known"):
        await seek.task
