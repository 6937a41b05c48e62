from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from kctl.errors import KctlError, OperationFailed, OperationRefused, OperationUnknown
from kctl.hosts.roster import Host
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.on_hosts import OnHosts
from kctl.operations.pause import PauseReading
from kctl.operations.seek import SeekTopic
from kctl.rows.hosts import HostRow, HostsAnswer
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable


def operation(state: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"id": "1", "state": state, "text": text, "started_at": 5.0, "result": {}} | more


@dataclass
class World:
    answers: dict[str, list[Any]]
    leader: str | None = "a"
    rows: tuple[HostRow, ...] = ()
    doubt = "the coordinator is silent"
    submitted: list[tuple[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    on_answer: Callable[[str], object] = str
    own_share: Callable[[], Awaitable[None]] | None = None
    owners: dict[int, str | None] = field(default_factory=dict)
    me: Host = field(default_factory=lambda: Host("a", "https://a:1", 1))

    @property
    def names(self) -> list[str]:
        return sorted([self.me.name, *self.answers])

    def answer(self) -> HostsAnswer:
        return HostsAnswer("a", "a", 1, self.rows)

    async def submit(self, host: str, given: Any) -> Any:
        self.submitted.append((host, given))
        return self._next(host)

    async def operation(self, host: str, _id: str, *, cancel: bool = False) -> Any:
        if cancel:
            self.cancelled.append(host)
            return operation("running")
        return self._next(host)

    def _next(self, host: str) -> Any:
        self.on_answer(host)
        found = self.answers[host].pop(0)
        if isinstance(found, AgentError):
            raise found
        return found

    def run(self, host: str, kind: Any = PauseReading, **params: Any) -> Any:
        return asyncio.run(self.begun(host, kind, params))

    def begun(self, host: str, kind: Any, params: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        own_share = self.own_share

        class Here(kind):  # type: ignore[misc]
            async def carry_out(self, *_: Any) -> Any:
                if own_share is not None:
                    await own_share()
                return f"here { ({name: value for name, value in asdict(self).items() if value}) }", {}

        context: Any = self
        return OnHosts(Caller(None, None, "http", "ann"), Here(**params), context, Report(str)).carry_out(host, params)

    @property
    def hosts(self) -> World:
        return self

    def partitions(self, _topic: str) -> frozenset[int]:
        return frozenset(self.owners)

    async def owners_on_hosts(self, _topic: str) -> Any:
        return self.owners, ["host c has not answered"]


def test_a_host_or_the_leader_is_followed_to_the_end_and_without_a_leader_or_a_host_it_is_rejected() -> None:
    end = operation("done", "paused", result={"x": 1})
    busy = {"error": {"code": "busy", "message": "256 connections are open already"}}
    world = World({"b": [operation("running"), AgentTimeout("no answer"), busy, end]})

    assert world.run("b", all=True) == ("b: paused", {"x": 1})
    assert world.submitted[0][1]["caller"] == "http token ann on a"

    world = World({"b": [operation("done", "on all")]}, leader="b")
    assert world.run("all", all=True) == ("b: on all", {})
    assert world.submitted[0][1]["params"] == {"all": True, "host": "all"}

    world.leader = None
    with pytest.raises(OperationRefused, match="the coordinator is silent"):
        world.run("all", all=True)
    world = World({}, rows=(HostRow("b", "gone", "https://b:1"), HostRow("c", "refused", "https://c:1")))
    with pytest.raises(OperationRefused, match="hosts are missing: b, c; name the hosts"):
        world.run("all", all=True)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([AgentUnreachable("connection refused")], OperationRefused),
        ([{"error": {"message": "a token is needed"}}], OperationRefused),
        ([AgentTimeout("no answer in time")], OperationUnknown),
        ([operation("failed", "it could not")], OperationFailed),
        ([operation("unknown", "it may")], OperationUnknown),
        ([operation("running"), {"error": {"code": "no_such_operation"}}], OperationUnknown),
        ([operation("running"), operation("done", "another one", started_at=9.0)], OperationUnknown),
    ],
)
def test_what_is_not_known_is_not_called_failed(answers: list[Any], kind: type[KctlError]) -> None:
    with pytest.raises(kind):
        World({"b": answers}).run("b", all=True)


def test_the_first_that_does_not_do_it_or_a_new_leader_ends_it_and_what_was_done_is_named() -> None:
    world = World({"b": [operation("failed", "no")], "c": [operation("done")]})

    with pytest.raises(OperationFailed, match="done on a; b has not done it: b: no"):
        world.run("all", all=True)
    assert [host for host, _ in world.submitted] == ["b"]
    world = World({"b": [operation("done")], "c": [operation("done")]})
    world.on_answer = lambda _: setattr(world, "leader", "b")

    with pytest.raises(OperationFailed, match="done on a, b; c and the following were left out"):
        world.run("all", all=True)


def test_a_cancellation_reaches_the_running_host_and_no_further_host_starts() -> None:
    world = World({"b": [operation("running"), operation("running"), operation("done", "just done")], "c": []})

    async def cancelled_while_b_runs() -> Any:
        begun = asyncio.create_task(world.begun("all", PauseReading, {"all": True}))

        def cancel_once(_host: str) -> None:
            world.on_answer = str
            asyncio.get_running_loop().call_soon(begun.cancel)

        world.on_answer = cancel_once
        return await begun

    with pytest.raises(OperationFailed, match="done on a, b; c and the following were left out"):
        asyncio.run(cancelled_while_b_runs())
    assert world.cancelled == ["b"]


def test_cancelled_during_its_own_share_a_leader_names_what_was_done_before() -> None:
    world = World({"a": [operation("done", "restarted a")]}, leader="m", me=Host("m", "https://m:1", 1))

    async def cancelled() -> Any:
        running = asyncio.Event()

        async def never_ends() -> None:
            running.set()
            await asyncio.Event().wait()

        world.own_share = never_ends
        begun = asyncio.create_task(world.begun("all", PauseReading, {"all": True}))
        await running.wait()
        begun.cancel()
        return await begun

    with pytest.raises(OperationFailed, match="done on a; m was cancelled, and the following were left out"):
        asyncio.run(cancelled())


def moved(*offsets: tuple[int, int]) -> dict[str, Any]:
    return operation("done", "moved", result={"rows": [{"partition": each, "to": to} for each, to in offsets]})


def test_a_seek_is_planned_on_all_hosts_before_the_first_one_moves_and_each_moves_what_it_reads() -> None:
    world = World({"b": [moved((0, 7), (2, 9)), moved((0, 7), (2, 9))], "c": [moved((1, 8)), moved((1, 8))]})
    world.owners = {0: "b/worker-0", 1: "c/worker-0", 2: "b/worker-1"}

    text, result = world.run("all", SeekTopic, topic="orders", to="latest")

    assert text == "b: moved; c: moved"
    assert [(row["partition"], row["to"], row["host"]) for row in result["rows"]] == [
        (0, 7, "b"),
        (1, 8, "c"),
        (2, 9, "b"),
    ]
    assert [(host, given["params"]["to"], given["params"].get("dry_run")) for host, given in world.submitted] == [
        ("b", "0=latest,2=latest", True),
        ("c", "1=latest", True),
        ("b", "0=7,2=9", None),
        ("c", "1=8", None),
    ]
    assert {given["params"]["host"] for _, given in world.submitted} == {"b", "c"}


@pytest.mark.parametrize(
    ("answers", "owner", "why"),
    [
        ([operation("failed", "no worker owns orders-0 now")], "b/worker-0", "b: no worker owns orders-0 now"),
        ([AgentTimeout("no answer in time")], "b/worker-0", "no answer in time"),
        ([], None, "no worker owns orders-0 now: .*; host c has not answered"),
    ],
)
def test_a_seek_that_is_not_planned_everywhere_moves_nothing(answers: list[Any], owner: str | None, why: str) -> None:
    world = World({"b": answers, "c": []})
    world.owners = {0: owner}

    with pytest.raises(OperationRefused if owner is None or "no answer" in why else OperationFailed, match=why):
        world.run("all", SeekTopic, topic="orders", to="0=5")
    assert all(given["params"]["dry_run"] for _, given in world.submitted)
