"""Sends a request to a fleet's master, and describes what the reply lacks."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from kctl.cli.command import Option
from kctl.cli.table import clean
from kctl.errors import CommandRejected, IncompleteAnswer, NoSuchOperation, SocketNotPermitted, UsageError
from kctl.fleets import Fleet
from kctl.rpc.client import Reply, call
from kctl.rpc.decode import answered
from kctl_agent.errors import BadParams
from kctl_agent.paths import MASTER_NAME, socket_path
from kctl_agent.rpc.messages import Request, Role, reducer_method, wire_method

if TYPE_CHECKING:
    from kctl.rows.verdict import Verdict

OLD_SECONDS = 2.0  # older answers are shown with their age; the collector takes new ones every second
OF_HOSTS = (
    Option(("--host",), "ask only this host of the fleet", metavar="NAME"),
    Option(("--local",), "ask no other host of the fleet", "flag"),
)


def of_hosts(options: argparse.Namespace) -> dict[str, Any]:
    given = {"host": options.host, "local": options.local or None}
    return {name: value for name, value in given.items() if value is not None}


def ask(fleet: Fleet, rpc: str, params: Mapping[str, Any], timeout_seconds: float, *, of_master: bool = False) -> Reply:
    """Returns the master's reply, even if some agents did not answer. Set `of_master` if the master answers `rpc`
    itself, without asking agents. Raises UsageError for bad parameters or an unknown id, and CommandRejected for other
    errors of the master. Raises NoMaster, or AgentError if no valid reply arrives in time."""
    request = Request(
        id="1",
        role=Role.EXTERNAL,
        rpc=rpc,
        method=wire_method(rpc) if of_master else reducer_method(rpc),
        params=dict(params),
        deadline_ms=max(int(timeout_seconds * 1000), 1),
    )
    path = socket_path(fleet.run_dir, MASTER_NAME)
    reply = call(path, request, timeout_seconds)
    if reply.error is None:
        return reply
    if reply.error.code in (BadParams.code, NoSuchOperation.code):
        raise UsageError(f"{rpc}: {reply.error.message}")
    if reply.error.code == "not_permitted":
        raise SocketNotPermitted(f"the master of {fleet.name} does not allow you to ask: {reply.error.message}")
    raise CommandRejected(f"{rpc}: {reply.error.message}")


def incomplete(reply: Reply) -> IncompleteAnswer | None:
    """Returns an error that names what the reply lacks, or None. Raise it after printing the reply."""
    return None if reply.complete else IncompleteAnswer("; ".join(lacks(reply)))


def lacks(*replies: Reply, known: Collection[str] = ()) -> list[str]:
    """Describes what `replies` lack: one sentence about all agents that did not answer, then one sentence for each
    other missing part. Omits the parts in `known`, because the caller shows them."""
    asked = {name for reply in replies for name in reply.asked}
    failed = {each.sender: each for reply in reversed(replies) for each in reply.failed}
    silent = [each for name, each in failed.items() if name in asked]
    names = ", ".join(f"{clean(str(each.sender))} ({each.code}: {clean(each.message)})" for each in silent)
    others = [clean(each.message) for name, each in failed.items() if name not in asked and name not in known]
    return [*([f"{len(silent)} of {len(asked)} did not answer: {names}"] if silent else []), *others]


def remark(reply: Reply) -> str | None:
    """Returns the verdict in one line, or None if the fleet is healthy or the reply has no verdict."""
    verdict = verdict_of(reply)
    if verdict is None or verdict.level == "ok":
        return None
    return clean(f"the fleet is {verdict.sentence}")


def verdict_of(reply: Reply) -> Verdict | None:
    from kctl.rows.verdict import Verdict

    return answered("verdict", Verdict, reply.verdict) if reply.has_verdict else None
