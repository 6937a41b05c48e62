"""`describe`: lists every method of an agent, with its parameters, deadline and whether it changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from kctl_agent.replies.describe import Method, MethodsReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject


def with_describe(commands: Mapping[str, AgentCommand]) -> dict[str, AgentCommand]:
    table = dict(commands)

    def answer(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
        document: JsonObject = encoded(MethodsReply(tuple(_described(each) for _, each in sorted(table.items()))))
        return document

    summary = QUESTIONS["describe"].summary
    table["describe"] = AgentCommand("describe", answer, summary, deadline_ms=1000, needs_snapshot=False)
    return table


def _described(command: AgentCommand) -> Method:
    return Method(command.method, command.name, command.summary, command.params, command.deadline_ms, command.changes)
