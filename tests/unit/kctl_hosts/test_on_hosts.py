"""An operation that other hosts carry out, with hosts that answer what a test gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kctl.errors import KctlError, OperationFailed, OperationRefused, OperationUnknown
from kctl.hosts.roster import Host
from kctl.master.operations.base import Report
from kctl.master.operations.on_hosts import OnHosts
from kctl.operations.pause import PauseReading
from kctl.operations.scale import ScaleFleet
from kctl.rows.hosts import HostsAnswer
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable


def operation(state: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"id": "1", "state": state, "text": text, "started_at": 5.0, "result": {}} | more


@dataclass
class World:
    """Answers of hosts, one after another; an error is raised."""

    answers: dict[str, list[Any]]
    leader: str | None = "a"
    doubt = "the coordinator is silent"
    submitted: list[tuple[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    on_answer: Callable[[str], object] = str

    me = Host("a", "https://a:1", 1)

    @property
    def names(self) -> list[str]:
        return ["a", *self.answers]

    def answer(self) -> HostsAnswer:
        return HostsAnswer("a", "a", 1)

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
        async def here(given: Any) -> Any:
            return f"here {given}", {}

        hosts: Any = self
        return asyncio.run(OnHosts(hosts, kind, "ann", here, Report(str)).carry_out(host, params))


def test_a_host_is_followed_to_the_end_and_its_answer_is_given() -> None:
    end = operation("done", "paused", result={"x": 1})
    busy = {"error": {"code": "busy", "message": "256 connections are open already"}}
    world = World({"b": [operation("running"), AgentTimeout("no answer"), busy, end]})

    assert world.run("b", all=True) == ("b: paused", {"x": 1})
    assert world.submitted[0][1]["caller"] == "ann on a"


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


def test_a_leader_has_one_after_another_do_it_and_each_its_share() -> None:
    world = World({"b": [operation("done")], "c": [operation("done")]})

    text, result = world.run("all", ScaleFleet, workers=4)

    assert text.startswith("a: here {'workers': 2}; b: ")
    assert list(result["hosts"]) == ["a", "b", "c"]
    assert [(host, given["params"]["workers"]) for host, given in world.submitted] == [("b", 1), ("c", 1)]


def test_the_first_that_does_not_do_it_ends_it_and_what_was_done_is_named() -> None:
    world = World({"b": [operation("failed", "no")], "c": [operation("done")]})

    with pytest.raises(OperationFailed, match="done on a; b has not done it: b: no"):
        world.run("all", all=True)
    assert [host for host, _ in world.submitted] == ["b"]


def test_one_that_leads_no_more_has_nobody_else_begin() -> None:
    world = World({"b": [operation("done")], "c": [operation("done")]})
    world.on_answer = lambda _: setattr(world, "leader", "b")

    with pytest.raises(OperationFailed, match="done on a, b; c and the following were left out"):
        world.run("all", all=True)


def test_others_pass_it_to_the_leader_and_without_one_it_is_refused() -> None:
    world = World({"b": [operation("done", "on all")]}, leader="b")
    assert world.run("all", all=True) == ("b: on all", {})
    assert world.submitted[0][1]["params"] == {"all": True, "host": "all"}

    world.leader = None
    with pytest.raises(OperationRefused, match="the coordinator is silent"):
        world.run("all", all=True)


def test_cancelled_it_is_cancelled_there_and_nobody_else_begins() -> None:
    world = World({"b": [operation("running"), operation("running"), operation("done", "just done")], "c": []})

    async def cancelled_while_b_runs() -> Any:
        async def here(_given: Any) -> Any:
            return "here", {}

        hosts: Any = world
        given = OnHosts(hosts, PauseReading, "ann", here, Report(str))
        begun = asyncio.create_task(given.carry_out("all", {"all": True}))

        def cancel_once(_host: str) -> None:
            world.on_answer = str
            asyncio.get_running_loop().call_soon(begun.cancel)

        world.on_answer = cancel_once
        return await begun

    with pytest.raises(OperationFailed, match="done on a, b; c and the following were left out"):
        asyncio.run(cancelled_while_b_runs())
    assert world.cancelled == ["b"]
