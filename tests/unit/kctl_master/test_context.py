import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.config.load import load
from kctl.errors import AgentRefused, OperationRefused, OperationUnknown
from kctl.master.members import Agents
from kctl.master.operations import context as module
from kctl.master.operations.base import Report
from kctl.master.operations.context import Context
from kctl.master.pauses import Pauses
from kctl.operations import operation
from kctl.rpc.fan_out import AgentPool
from kctl_agent.errors import BadParams
from kctl_agent.rpc.commands import SeekPartition, operation_commands
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.wire import JsonObject
from tests.configurations import KAFKA, loaded
from tests.servers.scripted_agent import Answers, ScriptedAgent, Stalls


def context_of(config: Any = None, agents: Any = None, pauses: Any = None, read: Any = None, **more: Any) -> Context:
    return Context(config, cast("Any", None), agents, cast("Any", None), pauses, (), (), read, **more)


SEEK: JsonObject = {"topic": "t", "partition": 0, "to": "7"}


@contextmanager
def agent(run_dir: Path) -> Iterator[Inbox]:
    inbox = Inbox()
    server = AgentServer(run_dir, "worker-0", operation_commands(inbox, SeekPartition))
    server.start()
    try:
        yield inbox
    finally:
        server.close()


class Seek:
    def __init__(self, run_dir: Path, pool: AgentPool, until: float = float("inf")) -> None:
        self.agents = Agents(run_dir, pool)
        context = context_of(agents=self.agents)
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
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(Agents.operate, "__defaults__", (0.5,))


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
    silent = r"^worker-0: no answer in time; the outcome is unknown$"
    with ScriptedAgent(short_dir, "worker-0", script), pytest.raises(OperationUnknown, match=silent):
        await Seek(short_dir, pool).task


async def test_what_never_came_to_an_agent_that_answers_again_has_failed(short_dir: Path, pool: AgentPool) -> None:
    with agent(short_dir) as inbox:
        seek = Seek(short_dir, pool)
        operate = seek.agents.operate

        async def lose_the_first(name: str, rpc: str, params: JsonObject, timeout_seconds: float = 5.0) -> JsonObject:
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


TOML = """
[kafka]
bootstrap_servers = "127.0.0.1:9092"
group = "{group}"
topics = ["t"]
[sinkers]
count = {count}
handler = "{handler}"
"""


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        ({}, ""),
        ({"handler": "module:corrected"}, "; kctl.toml has changed since: `kctl reload`"),
        ({"count": 2}, ""),  # as after `kctl scale`
        ({"group": "other"}, ""),  # a reload cannot apply it
        ({"count": -1}, "; kctl.toml has changed since and cannot be used: "),
    ],
)
async def test_a_change_that_a_reload_would_apply_is_named(tmp_path: Path, now: dict[str, Any], reported: str) -> None:
    file = tmp_path / "kctl.toml"
    before = {"group": "g", "count": 1, "handler": "module:wrong"}
    file.write_text(TOML.format(**before))
    context = context_of(load(file, {}), read=lambda: load(file, {}))

    file.write_text(TOML.format(**{**before, **now}))

    found = await context.file_changed()
    assert found.startswith(reported)
    assert bool(found) == bool(reported)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    config = loaded(tmp_path, KAFKA.replace('"t"', '"demo"'))
    return context_of(config, pauses=Pauses(tmp_path / "pauses.json"), partitions=partitions)


def partitions(topic: str) -> frozenset[int]:
    return frozenset(range(8)) if topic == "demo" else frozenset()


@pytest.mark.parametrize(
    ("params", "refusal"),
    [
        ({"topic": "nope"}, "this fleet does not read topic nope; it reads demo"),
        ({"topic": "demo", "partition": 99}, "topic demo has no partition 99; it has 8 partitions"),
    ],
)
def test_pause_and_seek_refuse_what_is_not_read(context: Context, params: dict[str, Any], refusal: str) -> None:
    for name, given in (("pause", params), ("seek", {**params, "to": "latest"})):
        with pytest.raises(BadParams) as refused:
            operation(name).given(given).touches(context)

        assert str(refused.value) == refusal
    assert context.pauses.all() == []
    with pytest.raises(BadParams, match=r"^only one of all and topic$"):
        operation("pause").given({"topic": "demo", "all": True})


def test_pauses_that_cannot_be_read_pause_everything_until_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    path.write_text("")
    pauses = Pauses(path)

    [pause] = pauses.all()
    assert (pause.what, pause.by) == ("everything", f"kctl, because {path} cannot be read")
    pauses.remove(None, None, None)
    assert Pauses(path).all() == []
    with pytest.raises(OperationRefused, match=r"^nothing is paused$"):
        pauses.remove(None, None, None)
    with pytest.raises(OperationRefused, match=r"^demo-3 is not paused"):
        pauses.remove(None, "demo", 3)
