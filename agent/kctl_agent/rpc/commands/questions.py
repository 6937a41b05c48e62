"""The questions of a process: each answers with a reply of the last snapshot, with current ages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kctl_agent.errors import NotReady
from kctl_agent.replies.describe import Method, MethodsReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject


def _command(name: str, question: Question) -> AgentCommand:
    """The answer raises NotReady if the reply does not exist yet and an empty one would be wrong."""
    kind: type = named(question.reply)

    def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
        reply = snapshot.reply(kind)
        if reply is None and question.not_yet:
            raise NotReady(f"{snapshot.worker.name} {question.not_yet} yet: ask again")
        document: JsonObject = encoded(kind() if reply is None else reply, now - snapshot.published_at)
        return document

    return AgentCommand(name, answer, question.summary)


ANSWERED: Final = {name: _command(name, each) for name, each in QUESTIONS.items() if name not in ("ping", "describe")}


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
