"""One question to the master of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kctl.cli.table import clean
from kctl.errors import CommandRejected, IncompleteAnswer, SocketNotPermitted
from kctl.fleets import Fleet
from kctl.rpc.client import call
from kctl_agent.messages import Reply, Request, Role
from kctl_agent.paths import MASTER_NAME, socket_path

__all__ = ["ask", "incomplete"]


def ask(fleet: Fleet, rpc: str, method: str, params: Mapping[str, Any], timeout_seconds: float) -> Reply:
    """The master's reply, complete or not.

    Raises:
        NoMaster: there is nobody to ask, and why.
        CommandRejected: the master answered with an error.
        AgentError: it did not answer in time, or not with a frame.
    """
    request = Request(
        id="1",
        role=Role.EXTERNAL,
        rpc=rpc,
        method=method,
        params=dict(params),
        deadline_ms=max(int(timeout_seconds * 1000), 1),
    )
    path = socket_path(fleet.run_dir, MASTER_NAME)
    reply = call(path, request, timeout_seconds)
    if reply.error is None:
        return reply
    if reply.error.code == "not_permitted":
        raise SocketNotPermitted(f"the master of {fleet.name} does not permit you to ask: {reply.error.message}")
    raise CommandRejected(f"{rpc}: {reply.error.message}", reply.error.code, reply.error.retriable)


def incomplete(reply: Reply) -> IncompleteAnswer | None:
    """Who did not answer, as an error to raise once the answer has been printed; None when all did."""
    if reply.complete:
        return None
    who = ", ".join(f"{clean(str(each.sender))} ({each.code}: {clean(each.message)})" for each in reply.failed)
    return IncompleteAnswer(f"{len(reply.failed)} of {len(reply.asked)} did not answer: {who}")
